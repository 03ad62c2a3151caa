package kinesistest

import "time"

// UpdateMaxRecordSize: docs.aws.amazon.com/kinesis/latest/APIReference/API_UpdateMaxRecordSize.html
//
// Sets how large a record with its key may be, 1024 to 10240 KiB.
type updateMaxRecordSizeInput struct {
	streamRef
	MaxRecordSizeInKiB *int64
}

func (s *Server) updateMaxRecordSize(q *request, in *updateMaxRecordSizeInput) (empty, error) {
	if in.MaxRecordSizeInKiB == nil {
		return empty{}, required("maxRecordSizeInKiB")
	}
	kib, err := within("maxRecordSizeInKiB", in.MaxRecordSizeInKiB, defaultRecordBytes>>10, maxRecordBytes>>10, 0)
	if err != nil {
		return empty{}, err
	}
	st, err := s.findActive(in.streamRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	s.change(st, statusUpdating, q.now, func(time.Time) { st.maxRecord = int(kib) << 10 })
	return empty{}, nil
}
