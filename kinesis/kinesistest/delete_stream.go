package kinesistest

import "time"

// DeleteStream: docs.aws.amazon.com/kinesis/latest/APIReference/API_DeleteStream.html
//
// The stream is DELETING for Options.StreamTransition, then gone with its records.
// Only an ACTIVE stream can be deleted. A stream created later under the name
// shares nothing with it: iterators and sequence numbers of the old one are refused.
// One that has consumers is ResourceInUseException without EnforceConsumerDeletion.
type deleteStreamInput struct {
	streamRef
	EnforceConsumerDeletion *bool
}

func (s *Server) deleteStream(q *request, in *deleteStreamInput) (empty, error) {
	st, err := s.findActive(in.streamRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	if enforce := in.EnforceConsumerDeletion; len(st.consumers) > 0 && (enforce == nil || !*enforce) {
		return empty{}, refuse("ResourceInUseException", "Stream %s under account %s has %d registered consumers.", st.name, s.opts.AccountID, len(st.consumers))
	}
	s.change(st, statusDeleting, q.now, func(time.Time) {
		for _, sh := range st.shards {
			st.lastSecond = max(st.lastSecond, sh.created)
		}
		st.shards, st.open, st.consumers = nil, nil, nil
	})
	return empty{}, nil
}
