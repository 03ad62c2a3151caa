package kinesistest

import "sort"

// AddTagsToStream: docs.aws.amazon.com/kinesis/latest/APIReference/API_AddTagsToStream.html
// ListTagsForStream: docs.aws.amazon.com/kinesis/latest/APIReference/API_ListTagsForStream.html
// RemoveTagsFromStream: docs.aws.amazon.com/kinesis/latest/APIReference/API_RemoveTagsFromStream.html
//
// Up to 50 tags a stream, listed by key, Limit (default 50) of them after
// ExclusiveStartTagKey.
type addTagsInput struct {
	streamRef
	Tags map[string]string
}

type removeTagsInput struct {
	streamRef
	TagKeys []string
}

type listTagsInput struct {
	streamRef
	ExclusiveStartTagKey *string
	Limit                *int64
}

type listTagsOutput struct {
	Tags        []tag
	HasMoreTags bool
}

type tag struct{ Key, Value string }

const maxTags = 50

func (s *Server) addTagsToStream(q *request, in *addTagsInput) (empty, error) {
	st, err := s.find(in.streamRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	added := 0
	for k := range in.Tags {
		if len(k) < 1 || len(k) > 128 || len(in.Tags[k]) > 256 {
			return empty{}, invalid("Tag key %q or its value is too long or empty.", k)
		}
		if _, ok := st.tags[k]; !ok {
			added++
		}
	}
	if len(st.tags)+added > maxTags {
		return empty{}, refuse("LimitExceededException", "A stream has %d tags at most.", maxTags)
	}
	for k, v := range in.Tags {
		st.tags[k] = v
	}
	return empty{}, nil
}

func (s *Server) removeTagsFromStream(q *request, in *removeTagsInput) (empty, error) {
	st, err := s.find(in.streamRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	for _, k := range in.TagKeys {
		delete(st.tags, k)
	}
	return empty{}, nil
}

func (s *Server) listTagsForStream(q *request, in *listTagsInput) (listTagsOutput, error) {
	out := listTagsOutput{Tags: []tag{}}
	limit, err := within("limit", in.Limit, 1, maxTags, maxTags)
	if err != nil {
		return out, err
	}
	st, err := s.find(in.streamRef, q.now)
	if err != nil {
		return out, err
	}
	defer st.mu.Unlock()
	for k, v := range st.tags {
		if in.ExclusiveStartTagKey == nil || k > *in.ExclusiveStartTagKey {
			out.Tags = append(out.Tags, tag{k, v})
		}
	}
	sort.Slice(out.Tags, func(i, j int) bool { return out.Tags[i].Key < out.Tags[j].Key })
	if len(out.Tags) > int(limit) {
		out.Tags, out.HasMoreTags = out.Tags[:limit], true
	}
	return out, nil
}
