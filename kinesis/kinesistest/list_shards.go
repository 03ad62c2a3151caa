package kinesistest

import "time"

// ListShards: docs.aws.amazon.com/kinesis/latest/APIReference/API_ListShards.html
//
// Shards by id, at most MaxResults (never more than 1000) a page, through a filter:
//
//   - AFTER_SHARD_ID: those after ShardId, as ExclusiveStartShardId does
//   - AT_TRIM_HORIZON, AT_LATEST, AT_TIMESTAMP: those open at the instant
//   - FROM_TRIM_HORIZON (also without a filter): all that have not expired
//   - FROM_TIMESTAMP: those that were open at the instant or have opened since
//
// An instant before the trim horizon counts as the horizon, one in the future is
// InvalidArgumentException, as is a NextToken beside anything but MaxResults: it
// says where the listing goes on by itself. It is good for 300 seconds. A
// StreamCreationTimestamp that is not the stream's finds no stream.
type listShardsInput struct {
	streamRef
	ExclusiveStartShardId   *string
	MaxResults              *int64
	NextToken               *string
	ShardFilter             *shardFilter
	StreamCreationTimestamp *instant
}

type shardFilter struct {
	Type      string
	ShardId   *string  `json:",omitempty"`
	Timestamp *instant `json:",omitempty"`
}

type listShardsOutput struct {
	Shards    []shardOutput
	NextToken string `json:",omitempty"`
}

type shardOutput struct {
	ShardId               string
	ParentShardId         string `json:",omitempty"`
	AdjacentParentShardId string `json:",omitempty"`
	HashKeyRange          hashKeyRange
	SequenceNumberRange   sequenceNumberRange
}

type hashKeyRange struct{ StartingHashKey, EndingHashKey string }

type sequenceNumberRange struct {
	StartingSequenceNumber string
	EndingSequenceNumber   string `json:",omitempty"`
}

const maxListedShards = 1000

func (s *Server) listShards(q *request, in *listShardsInput) (listShardsOutput, error) {
	limit, err := within("maxResults", in.MaxResults, 1, 10000, maxListedShards)
	if err != nil {
		return listShardsOutput{}, err
	}
	t := token{Filter: &shardFilter{Type: "FROM_TRIM_HORIZON"}}
	ref := in.streamRef
	if in.NextToken != nil {
		if err := in.tokenAlone(); err != nil {
			return listShardsOutput{}, err
		}
		if t, err = s.openToken(kindShards, *in.NextToken, q.now); err != nil {
			return listShardsOutput{}, err
		}
		ref = streamRef{StreamName: &t.Stream}
		q.Stream = t.Stream
	} else if err := in.start(&t, q.now); err != nil {
		return listShardsOutput{}, err
	}
	st, err := s.find(ref, q.now)
	if err != nil {
		return listShardsOutput{}, err
	}
	defer st.mu.Unlock()
	if other := in.StreamCreationTimestamp; other != nil && time.Time(*other).Unix() != st.created.Unix() {
		return listShardsOutput{}, s.noStream(st.name)
	}
	if t.UID != 0 && t.UID != st.uid {
		return listShardsOutput{}, s.noStream(st.name)
	}
	shards, more := st.list(t.After, *t.Filter, int(min(limit, maxListedShards)), q.now)
	out := listShardsOutput{Shards: shards}
	if more {
		out.NextToken = s.sealToken(kindShards, token{
			Stream: st.name, UID: st.uid, After: shards[len(shards)-1].ShardId, Filter: t.Filter, Made: q.now.UnixMilli(),
		})
	}
	return out, nil
}

func (in *listShardsInput) tokenAlone() error {
	for _, m := range []struct {
		name  string
		given bool
	}{
		{"StreamName", in.StreamName != nil},
		{"StreamARN", in.StreamARN != nil},
		{"ExclusiveStartShardId", in.ExclusiveStartShardId != nil},
		{"ShardFilter", in.ShardFilter != nil},
		{"StreamCreationTimestamp", in.StreamCreationTimestamp != nil},
	} {
		if m.given {
			return invalid("NextToken and %s cannot be provided together.", m.name)
		}
	}
	return nil
}

// start fills in where a first page begins.
func (in *listShardsInput) start(t *token, now time.Time) error {
	if in.ExclusiveStartShardId != nil {
		t.After = *in.ExclusiveStartShardId
	}
	f := in.ShardFilter
	if f == nil {
		return nil
	}
	switch f.Type {
	case "AFTER_SHARD_ID":
		if f.ShardId == nil {
			return invalid("ShardFilter of type AFTER_SHARD_ID needs a ShardId.")
		}
		t.After = max(t.After, *f.ShardId)
	case "AT_TIMESTAMP", "FROM_TIMESTAMP":
		if f.Timestamp == nil {
			return invalid("ShardFilter of type %s needs a Timestamp.", f.Type)
		}
		if time.Time(*f.Timestamp).After(now) {
			return invalid("The Timestamp of the ShardFilter is in the future.")
		}
	case "AT_TRIM_HORIZON", "FROM_TRIM_HORIZON", "AT_LATEST":
	default:
		return validation("Value '%s' at 'shardFilter.type' failed to satisfy constraint: Member must satisfy enum value set: [AFTER_SHARD_ID, AT_TRIM_HORIZON, FROM_TRIM_HORIZON, AT_LATEST, AT_TIMESTAMP, FROM_TIMESTAMP]", f.Type)
	}
	t.Filter = f
	return nil
}

// list returns the shards after an id that pass a filter, and whether more follow.
func (st *stream) list(after string, f shardFilter, limit int, now time.Time) (out []shardOutput, more bool) {
	out = []shardOutput{}
	for _, sh := range st.shards {
		id := sh.id()
		if id <= after || st.expired(sh, now) || !st.passes(sh, f, now) {
			continue
		}
		if len(out) == limit {
			return out, true
		}
		out = append(out, sh.output())
	}
	return out, false
}

func (st *stream) passes(sh *shard, f shardFilter, now time.Time) bool {
	at := now.Add(-st.retention)
	if f.Timestamp != nil && at.Before(time.Time(*f.Timestamp)) {
		at = time.Time(*f.Timestamp)
	}
	// A stream that is younger than the instant asked for was open with its first
	// shards as far back as anything is.
	if len(st.shards) > 0 && at.Before(st.shards[0].opened) {
		at = st.shards[0].opened
	}
	open := sh.closed.IsZero() || !sh.closed.Before(at)
	switch f.Type {
	case "AT_LATEST":
		return sh.closed.IsZero()
	case "AT_TRIM_HORIZON", "AT_TIMESTAMP":
		return open && !millis(sh.opened).After(at)
	case "FROM_TIMESTAMP":
		return open
	}
	return true
}

// millis cuts an instant as requests have it: without this a shard opened at the
// very millisecond that is asked for would count as opened later.
func millis(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()) }

func (sh *shard) output() shardOutput {
	out := shardOutput{
		ShardId:             sh.id(),
		HashKeyRange:        sh.keys(),
		SequenceNumberRange: sequenceNumberRange{StartingSequenceNumber: sh.start.String()},
	}
	if len(sh.parents) > 0 {
		out.ParentShardId = shardID(sh.parents[0])
	}
	if len(sh.parents) > 1 {
		out.AdjacentParentShardId = shardID(sh.parents[1])
	}
	if !sh.closed.IsZero() {
		out.SequenceNumberRange.EndingSequenceNumber = sh.end.String()
	}
	return out
}

func (sh *shard) keys() hashKeyRange { return hashKeyRange{sh.low.String(), sh.high.String()} }
