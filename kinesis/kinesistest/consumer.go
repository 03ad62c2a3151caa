package kinesistest

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// consumer is one registered consumer of a stream. The stream's lock guards it.
type consumer struct {
	name, arn string
	created   time.Time
	status    string // CREATING, ACTIVE, DELETING; "" once it is gone
	until     time.Time
	shards    map[uint32]*subscriptions
}

// subscriptions is what is known of one consumer's subscriptions to one shard.
type subscriptions struct {
	called  time.Time     // the latest call, for the limit of calls
	began   time.Time     // the latest call that succeeded
	current *subscription // nil: none is open
	free    time.Time     // when the limit of bytes lets the next event out
}

// subscription is one open event stream.
type subscription struct {
	ends  time.Time
	taken chan struct{} // closed once another call took the subscription over
}

// settleConsumers ends what consumers go through, once its time has come.
func (st *stream) settleConsumers(now time.Time) {
	for i := 0; i < len(st.consumers); i++ {
		c := st.consumers[i]
		switch {
		case now.Before(c.until):
		case c.status == statusCreating:
			c.status = statusActive
		case c.status == statusDeleting:
			c.status = ""
			st.consumers = append(st.consumers[:i:i], st.consumers[i+1:]...)
			i--
		}
	}
}

// addConsumer registers a consumer. One that is registered again under its name has
// another ARN: the ARN ends in the second of creation.
func (st *stream) addConsumer(name string, now, until time.Time) *consumer {
	if st.stamps == nil {
		st.stamps = map[string]int64{}
	}
	created := now
	if least := st.stamps[name] + 1; created.Unix() < least {
		created = time.Unix(least, 0).UTC()
	}
	st.stamps[name] = created.Unix()
	c := &consumer{
		name: name, arn: fmt.Sprintf("%s/consumer/%s:%d", st.arn, name, created.Unix()), created: created,
		status: statusCreating, until: until, shards: map[uint32]*subscriptions{},
	}
	i := sort.Search(len(st.consumers), func(i int) bool { return st.consumers[i].name > name })
	st.consumers = append(st.consumers[:i:i], append([]*consumer{c}, st.consumers[i:]...)...)
	st.settleConsumers(now)
	return c
}

func (st *stream) consumer(match func(*consumer) bool) *consumer {
	for _, c := range st.consumers {
		if match(c) {
			return c
		}
	}
	return nil
}

// consumerRef is how a request names a consumer: by its ARN, or by its stream's ARN
// and its name, or by all of them if they agree.
type consumerRef struct {
	ConsumerARN  *string
	ConsumerName *string
	StreamARN    *string
}

func (r *consumerRef) target() (stream, shard string) {
	switch {
	case r.ConsumerARN != nil:
		arn, _, _ := strings.Cut(*r.ConsumerARN, "/consumer/")
		return (&streamRef{StreamARN: &arn}).target()
	case r.StreamARN != nil:
		return (&streamRef{StreamARN: r.StreamARN}).target()
	}
	return "", ""
}

// findConsumer returns a consumer and its stream, which is locked.
func (s *Server) findConsumer(r consumerRef, now time.Time) (*stream, *consumer, error) {
	arn := r.StreamARN
	if r.ConsumerARN != nil {
		of, name, ok := strings.Cut(*r.ConsumerARN, "/consumer/")
		if !ok || !strings.Contains(name, ":") {
			return nil, nil, validation("Value '%s' at 'consumerARN' failed to satisfy constraint: Member must be the ARN of a consumer", *r.ConsumerARN)
		}
		if arn != nil && *arn != of {
			return nil, nil, invalid("StreamARN %s is not the stream of ConsumerARN %s.", *arn, *r.ConsumerARN)
		}
		arn = &of
	} else if r.ConsumerName == nil || arn == nil {
		return nil, nil, invalid("Either ConsumerARN or both StreamARN and ConsumerName must be provided.")
	}
	st, err := s.find(streamRef{StreamARN: arn}, now)
	if err != nil {
		return nil, nil, err
	}
	c := st.consumer(func(c *consumer) bool {
		return (r.ConsumerARN == nil || c.arn == *r.ConsumerARN) && (r.ConsumerName == nil || c.name == *r.ConsumerName)
	})
	if c == nil {
		defer st.mu.Unlock()
		what := r.ConsumerARN
		if what == nil {
			what = r.ConsumerName
		}
		return nil, nil, refuse("ResourceNotFoundException", "Consumer %s of stream %s under account %s not found.", *what, st.name, s.opts.AccountID)
	}
	return st, c, nil
}

// consumerOutput is a consumer as three of the actions describe it.
type consumerOutput struct {
	ConsumerARN               string
	ConsumerName              string
	ConsumerStatus            string
	ConsumerCreationTimestamp instant
}

func (c *consumer) output() consumerOutput {
	return consumerOutput{c.arn, c.name, c.status, instant(c.created)}
}
