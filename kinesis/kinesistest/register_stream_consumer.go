package kinesistest

// RegisterStreamConsumer: docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html
//
// The consumer is CREATING for Options.StreamTransition, then ACTIVE. A name that the
// stream has already is ResourceInUseException. A stream has Options.ConsumerLimit
// consumers at most, and an account five that are CREATING: beyond that it is
// LimitExceededException.
type registerStreamConsumerInput struct {
	StreamARN    *string
	ConsumerName *string
	Tags         map[string]string
}

type registerStreamConsumerOutput struct{ Consumer consumerOutput }

const maxCreatingConsumers = 5

func (in *registerStreamConsumerInput) target() (stream, shard string) {
	return (&streamRef{StreamARN: in.StreamARN}).target()
}

func (s *Server) registerStreamConsumer(q *request, in *registerStreamConsumerInput) (registerStreamConsumerOutput, error) {
	var out registerStreamConsumerOutput
	switch {
	case in.StreamARN == nil:
		return out, required("streamARN")
	case in.ConsumerName == nil:
		return out, required("consumerName")
	}
	if checkName(*in.ConsumerName) != nil { // the same pattern as a stream's
		return out, validation("Value '%s' at 'consumerName' failed to satisfy constraint: Member must have 1 to 128 characters of [a-zA-Z0-9_.-]", *in.ConsumerName)
	}
	creating := 0
	for _, st := range s.all(q.now) {
		for _, c := range st.consumers {
			if c.status == statusCreating {
				creating++
			}
		}
		st.mu.Unlock()
	}
	st, err := s.findActive(streamRef{StreamARN: in.StreamARN}, q.now)
	if err != nil {
		return out, err
	}
	defer st.mu.Unlock()
	switch {
	case st.consumer(func(c *consumer) bool { return c.name == *in.ConsumerName }) != nil:
		return out, refuse("ResourceInUseException", "Consumer %s of stream %s under account %s already exists.", *in.ConsumerName, st.name, s.opts.AccountID)
	case len(st.consumers) >= s.opts.ConsumerLimit:
		return out, refuse("LimitExceededException", "Stream %s has %d consumers, which is the limit.", st.name, len(st.consumers))
	case creating >= maxCreatingConsumers:
		return out, refuse("LimitExceededException", "%d consumers of account %s are CREATING, which is the limit.", creating, s.opts.AccountID)
	}
	c := st.addConsumer(*in.ConsumerName, q.now, q.now.Add(s.opts.StreamTransition))
	// The answer says CREATING even where that takes no time.
	out.Consumer = c.output()
	out.Consumer.ConsumerStatus = statusCreating
	return out, nil
}
