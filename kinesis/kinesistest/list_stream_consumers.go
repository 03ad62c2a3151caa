package kinesistest

import "time"

// ListStreamConsumers: docs.aws.amazon.com/kinesis/latest/APIReference/API_ListStreamConsumers.html
//
// Consumers by name, at most MaxResults (default and most 100) a page; NextToken is
// good for 300 seconds. A StreamCreationTimestamp that is not the stream's finds no
// stream.
type listStreamConsumersInput struct {
	StreamARN               *string
	MaxResults              *int64
	NextToken               *string
	StreamCreationTimestamp *instant
}

type listStreamConsumersOutput struct {
	Consumers []consumerOutput
	NextToken string `json:",omitempty"`
}

const maxListedConsumers = 100

func (in *listStreamConsumersInput) target() (stream, shard string) {
	return (&streamRef{StreamARN: in.StreamARN}).target()
}

func (s *Server) listStreamConsumers(q *request, in *listStreamConsumersInput) (listStreamConsumersOutput, error) {
	out := listStreamConsumersOutput{Consumers: []consumerOutput{}}
	limit, err := within("maxResults", in.MaxResults, 1, 10000, maxListedConsumers)
	if err != nil {
		return out, err
	}
	if in.StreamARN == nil {
		return out, required("streamARN")
	}
	var t token
	if in.NextToken != nil {
		if in.StreamCreationTimestamp != nil {
			return out, invalid("NextToken and StreamCreationTimestamp cannot be provided together.")
		}
		if t, err = s.openToken(kindConsumers, *in.NextToken, q.now); err != nil {
			return out, err
		}
	}
	st, err := s.find(streamRef{StreamARN: in.StreamARN}, q.now)
	if err != nil {
		return out, err
	}
	defer st.mu.Unlock()
	if other := in.StreamCreationTimestamp; other != nil && time.Time(*other).Unix() != st.created.Unix() || t.UID != 0 && t.UID != st.uid {
		return out, s.noStream(st.name)
	}
	for _, c := range st.consumers {
		switch {
		case c.name <= t.After:
		case len(out.Consumers) == int(min(limit, maxListedConsumers)):
			last := out.Consumers[len(out.Consumers)-1].ConsumerName
			out.NextToken = s.sealToken(kindConsumers, token{Stream: st.name, UID: st.uid, After: last, Made: q.now.UnixMilli()})
			return out, nil
		default:
			out.Consumers = append(out.Consumers, c.output())
		}
	}
	return out, nil
}
