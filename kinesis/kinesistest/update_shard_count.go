package kinesistest

import "time"

// UpdateShardCount: docs.aws.amazon.com/kinesis/latest/APIReference/API_UpdateShardCount.html
//
// Splits and merges until TargetShardCount open shards have equal key ranges; some
// shards live only in between, closed and empty. More than double or less than half
// of the open shards is LimitExceededException. The stream is UPDATING for
// Options.StreamTransition; the shards change at its end.
type updateShardCountInput struct {
	streamRef
	ScalingType      *string
	TargetShardCount *int64
}

type updateShardCountOutput struct {
	StreamName        string
	StreamARN         string
	CurrentShardCount int
	TargetShardCount  int
}

func (s *Server) updateShardCount(q *request, in *updateShardCountInput) (updateShardCountOutput, error) {
	var out updateShardCountOutput
	if in.TargetShardCount == nil {
		return out, required("targetShardCount")
	}
	if in.ScalingType == nil || *in.ScalingType != "UNIFORM_SCALING" {
		return out, validation("Value at 'scalingType' failed to satisfy constraint: Member must satisfy enum value set: [UNIFORM_SCALING]")
	}
	target, err := within("targetShardCount", in.TargetShardCount, 1, 10000, 1)
	if err != nil {
		return out, err
	}
	open := s.openShards(q.now)
	st, err := s.findActive(in.streamRef, q.now)
	if err != nil {
		return out, err
	}
	defer st.mu.Unlock()
	have, want := len(st.open), int(target)
	switch {
	case st.mode == onDemand:
		return out, validation("Stream %s is on demand: its shards can't be counted out", st.name)
	case want > 2*have:
		return out, refuse("LimitExceededException", "UpdateShardCount cannot scale up over double your current open shard count. Current open shard count: %d Target shard count: %d", have, want)
	case 2*want < have:
		return out, refuse("LimitExceededException", "UpdateShardCount cannot scale down below half your current open shard count. Current open shard count: %d Target shard count: %d", have, want)
	case open-have+want > s.opts.ShardLimit:
		return out, refuse("LimitExceededException", "This request would exceed the shard limit of %d for the account %s in %s.", s.opts.ShardLimit, s.opts.AccountID, s.opts.Region)
	}
	s.change(st, statusUpdating, q.now, func(at time.Time) { st.scale(want, at) })
	return updateShardCountOutput{st.name, st.arn, have, want}, nil
}

// scale cuts the open shards at the bounds of n equal ranges, then joins the pieces
// of each range from the left.
func (st *stream) scale(n int, at time.Time) {
	for i := 1; i < n; i++ {
		bound := uniform(i, n)
		if sh := st.route(bound); sh.low != bound {
			st.split(sh, bound, at)
		}
	}
	for i := range n {
		low := uniform(i, n)
		end := maxHashKey
		if i+1 < n {
			end = uniform(i+1, n).prev()
		}
		for sh := st.route(low); sh.high != end; {
			sh = st.merge(sh, st.route(sh.high.next()), at)
		}
	}
}
