package kinesistest

import "time"

// SplitShard: docs.aws.amazon.com/kinesis/latest/APIReference/API_SplitShard.html
//
// Closes an open shard and opens two, the second from NewStartingHashKey on, which
// must lie inside the shard's range and not at its start. The stream is UPDATING
// for Options.StreamTransition; the shards change at its end.
type splitShardInput struct {
	streamRef
	ShardToSplit       *string
	NewStartingHashKey *string
}

func (in *splitShardInput) target() (stream, shard string) {
	stream, _ = in.streamRef.target()
	if in.ShardToSplit != nil {
		shard = *in.ShardToSplit
	}
	return stream, shard
}

func (s *Server) splitShard(q *request, in *splitShardInput) (empty, error) {
	switch {
	case in.ShardToSplit == nil:
		return empty{}, required("shardToSplit")
	case in.NewStartingHashKey == nil:
		return empty{}, required("newStartingHashKey")
	}
	if err := decimal("newStartingHashKey", *in.NewStartingHashKey, 39); err != nil {
		return empty{}, err
	}
	key, ok := parseHashKey(*in.NewStartingHashKey)
	if !ok {
		return empty{}, invalid("NewStartingHashKey %s is not below 2^128.", *in.NewStartingHashKey)
	}
	if err := s.shardsLeft(1, q.now); err != nil {
		return empty{}, err
	}
	st, err := s.findActive(in.streamRef, q.now)
	if err != nil {
		return empty{}, err
	}
	defer st.mu.Unlock()
	sh, err := st.openShard(*in.ShardToSplit, q.now)
	if err != nil {
		return empty{}, err
	}
	if !sh.low.less(key) || sh.high.less(key) {
		return empty{}, invalid("NewStartingHashKey %s used in SplitShard() on shard %s in stream %s is not inside the shard's hash key range %s to %s.", key, sh.id(), st.name, sh.low, sh.high)
	}
	s.change(st, statusUpdating, q.now, func(at time.Time) { st.split(sh, key, at) })
	return empty{}, nil
}
