package kinesistest

import (
	"sort"
	"time"
)

// ListStreams: docs.aws.amazon.com/kinesis/latest/APIReference/API_ListStreams.html
//
// Streams by name, Limit (default 100) of them after ExclusiveStartStreamName or
// from where NextToken stands; with HasMoreStreams comes a NextToken that is good
// for 300 seconds.
type listStreamsInput struct {
	Limit                    *int64
	ExclusiveStartStreamName *string
	NextToken                *string
}

type listStreamsOutput struct {
	StreamNames     []string
	StreamSummaries []streamSummary
	HasMoreStreams  bool
	NextToken       string `json:",omitempty"`
}

type streamSummary struct {
	StreamName              string
	StreamARN               string
	StreamStatus            string
	StreamModeDetails       streamMode
	StreamCreationTimestamp instant
}

func (s *Server) listStreams(q *request, in *listStreamsInput) (listStreamsOutput, error) {
	out := listStreamsOutput{StreamNames: []string{}, StreamSummaries: []streamSummary{}}
	limit, err := within("limit", in.Limit, 1, 10000, 100)
	if err != nil {
		return out, err
	}
	after := ""
	switch {
	case in.NextToken != nil && in.ExclusiveStartStreamName != nil:
		return out, invalid("NextToken and ExclusiveStartStreamName cannot be provided together.")
	case in.NextToken != nil:
		t, err := s.openToken(kindStreams, *in.NextToken, q.now)
		if err != nil {
			return out, err
		}
		after = t.After
	case in.ExclusiveStartStreamName != nil:
		after = *in.ExclusiveStartStreamName
	}
	for _, st := range s.all(q.now) {
		switch {
		case st.name <= after:
		case len(out.StreamNames) == int(limit):
			out.HasMoreStreams = true
		default:
			out.StreamNames = append(out.StreamNames, st.name)
			out.StreamSummaries = append(out.StreamSummaries, streamSummary{st.name, st.arn, st.status, streamMode{st.mode}, instant(st.created)})
		}
		st.mu.Unlock()
	}
	if out.HasMoreStreams {
		last := out.StreamNames[len(out.StreamNames)-1]
		out.NextToken = s.sealToken(kindStreams, token{After: last, Made: q.now.UnixMilli()})
	}
	return out, nil
}

// all returns the streams as they stand now, by name, each locked.
func (s *Server) all(now time.Time) []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*stream
	for _, st := range s.streams {
		st.mu.Lock()
		st.settle(now)
		if st.status == "" {
			s.forget(st)
			st.mu.Unlock()
			continue
		}
		out = append(out, st)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}
