package kinesistest

// DescribeStreamConsumer: docs.aws.amazon.com/kinesis/latest/APIReference/API_DescribeStreamConsumer.html
type describeStreamConsumerInput struct{ consumerRef }

type describeStreamConsumerOutput struct {
	ConsumerDescription struct {
		consumerOutput
		StreamARN string
	}
}

func (s *Server) describeStreamConsumer(q *request, in *describeStreamConsumerInput) (describeStreamConsumerOutput, error) {
	var out describeStreamConsumerOutput
	st, c, err := s.findConsumer(in.consumerRef, q.now)
	if err != nil {
		return out, err
	}
	defer st.mu.Unlock()
	out.ConsumerDescription.consumerOutput = c.output()
	out.ConsumerDescription.StreamARN = st.arn
	return out, nil
}
