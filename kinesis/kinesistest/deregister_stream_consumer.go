package kinesistest

// DeregisterStreamConsumer: docs.aws.amazon.com/kinesis/latest/APIReference/API_DeregisterStreamConsumer.html
//
// The consumer is DELETING for Options.StreamTransition, then gone; its subscriptions
// end at once. Only an ACTIVE one can be deregistered.
type deregisterStreamConsumerInput struct{ consumerRef }

func (s *Server) deregisterStreamConsumer(q *request, in *deregisterStreamConsumerInput) (empty, error) {
	st, c, err := s.findConsumer(in.consumerRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	if c.status != statusActive {
		return empty{}, refuse("ResourceInUseException", "Consumer %s of stream %s not ACTIVE, instead in state %s.", c.name, st.name, c.status)
	}
	c.status, c.until = statusDeleting, q.now.Add(s.opts.StreamTransition)
	st.settleConsumers(q.now)
	st.wake()
	return empty{}, nil
}
