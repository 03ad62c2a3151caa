package kinesistest

import "time"

// IncreaseStreamRetentionPeriod: docs.aws.amazon.com/kinesis/latest/APIReference/API_IncreaseStreamRetentionPeriod.html
// DecreaseStreamRetentionPeriod: docs.aws.amazon.com/kinesis/latest/APIReference/API_DecreaseStreamRetentionPeriod.html
//
// 24 to 8760 hours. A shorter period makes older records unreadable at once; a
// longer one does not bring records back.
type retentionInput struct {
	streamRef
	RetentionPeriodHours *int64
}

func (s *Server) increaseRetention(q *request, in *retentionInput) (empty, error) {
	return s.setRetention(q, in, func(have, want int64) error {
		if want < have {
			return invalid("Requested retention period (%d hours) can not be shorter than existing retention period (%d hours).", want, have)
		}
		return nil
	})
}

func (s *Server) decreaseRetention(q *request, in *retentionInput) (empty, error) {
	return s.setRetention(q, in, func(have, want int64) error {
		if want > have {
			return invalid("Requested retention period (%d hours) can not be longer than existing retention period (%d hours).", want, have)
		}
		return nil
	})
}

func (s *Server) setRetention(q *request, in *retentionInput, check func(have, want int64) error) (empty, error) {
	if in.RetentionPeriodHours == nil {
		return empty{}, required("retentionPeriodHours")
	}
	hours := *in.RetentionPeriodHours
	if hours < 24 || hours > 8760 {
		return empty{}, invalid("Retention period of %d hours is not between 24 and 8760.", hours)
	}
	st, err := s.findActive(in.streamRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	if err := check(int64(st.retention/time.Hour), hours); err != nil {
		return empty{}, err
	}
	s.change(st, statusUpdating, q.now, func(at time.Time) {
		for _, sh := range st.shards {
			st.trim(sh, at)
		}
		st.retention = time.Duration(hours) * time.Hour
	})
	return empty{}, nil
}
