package kinesistest

import "time"

// MergeShards: docs.aws.amazon.com/kinesis/latest/APIReference/API_MergeShards.html
//
// Closes two open shards whose key ranges touch and opens one. The stream is
// UPDATING for Options.StreamTransition; the shards change at its end.
type mergeShardsInput struct {
	streamRef
	ShardToMerge         *string
	AdjacentShardToMerge *string
}

func (in *mergeShardsInput) target() (stream, shard string) {
	stream, _ = in.streamRef.target()
	if in.ShardToMerge != nil {
		shard = *in.ShardToMerge
	}
	return stream, shard
}

func (s *Server) mergeShards(q *request, in *mergeShardsInput) (empty, error) {
	switch {
	case in.ShardToMerge == nil:
		return empty{}, required("shardToMerge")
	case in.AdjacentShardToMerge == nil:
		return empty{}, required("adjacentShardToMerge")
	}
	st, err := s.findActive(in.streamRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	a, err := st.openShard(*in.ShardToMerge, q.now)
	if err != nil {
		return empty{}, err
	}
	b, err := st.openShard(*in.AdjacentShardToMerge, q.now)
	if err != nil {
		return empty{}, err
	}
	if a == b || !adjacent(a, b) {
		return empty{}, invalid("Shards %s and %s in stream %s are not an adjacent pair of shards eligible for merging.", a.id(), b.id(), st.name)
	}
	s.change(st, statusUpdating, q.now, func(at time.Time) { st.merge(a, b, at) })
	return empty{}, nil
}
