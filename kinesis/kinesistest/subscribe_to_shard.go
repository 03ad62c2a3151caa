package kinesistest

import (
	"strings"
	"time"
)

// SubscribeToShard: docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html
//
// The answer is an event stream (see eventStream) that lasts for
// Options.SubscriptionLife. A consumer has one subscription to a shard: a call within
// five seconds of one that succeeded is ResourceInUseException, a later one takes the
// subscription over. A consumer and shard are good for a call a second, beyond which
// it is LimitExceededException.
type subscribeToShardInput struct {
	ConsumerARN      *string
	ShardId          *string
	StartingPosition *startingPosition
}

type startingPosition struct {
	Type           *string
	SequenceNumber *string
	Timestamp      *instant
}

const subscribeGap = 5 * time.Second

func (in *subscribeToShardInput) target() (stream, shard string) {
	stream, _ = (&consumerRef{ConsumerARN: in.ConsumerARN}).target()
	if in.ShardId != nil {
		shard = *in.ShardId
	}
	return stream, shard
}

func (s *Server) subscribeToShard(q *request, in *subscribeToShardInput) (*eventStream, error) {
	switch {
	case in.ConsumerARN == nil:
		return nil, required("consumerARN")
	case in.ShardId == nil:
		return nil, required("shardId")
	case in.StartingPosition == nil:
		return nil, required("startingPosition")
	case in.StartingPosition.Type == nil:
		return nil, required("startingPosition.type")
	}
	st, c, err := s.findConsumer(consumerRef{ConsumerARN: in.ConsumerARN}, q.now)
	if err != nil {
		return nil, err
	}
	defer st.mu.Unlock()
	sh, err := st.shard(*in.ShardId, q.now)
	if err != nil {
		return nil, err
	}
	if c.status != statusActive {
		return nil, refuse("ResourceInUseException", "Consumer %s of stream %s not ACTIVE, instead in state %s.", c.name, st.name, c.status)
	}
	of := c.shards[sh.index]
	if of == nil {
		of = &subscriptions{}
		c.shards[sh.index] = of
	}
	recent := !of.called.IsZero() && q.now.Sub(of.called) < time.Second
	of.called = q.now
	if recent && !s.opts.NoLimits {
		return nil, refuse("LimitExceededException", "Rate exceeded for consumer %s and shard %s.", *in.ConsumerARN, *in.ShardId)
	}
	if !of.began.IsZero() && q.now.Sub(of.began) < subscribeGap {
		return nil, refuse("ResourceInUseException", "Another active subscription exists for this consumer: %s:%s:%s.", s.opts.AccountID, strings.TrimPrefix(c.arn, st.arn+"/consumer/"), sh.id())
	}
	st.trim(sh, q.now)
	at := &getShardIteratorInput{ShardIteratorType: in.StartingPosition.Type, StartingSequenceNumber: in.StartingPosition.SequenceNumber, Timestamp: in.StartingPosition.Timestamp}
	from, err := at.counter(st, sh, q.now)
	if err != nil {
		return nil, err
	}
	if of.current != nil {
		close(of.current.taken)
	}
	of.began, of.current = q.now, &subscription{ends: q.now.Add(s.opts.SubscriptionLife), taken: make(chan struct{})}
	return &eventStream{server: s, stream: st, shard: sh, consumer: c, of: of, sub: of.current, from: from, fault: q.do.stream, gone: q.gone}, nil
}
