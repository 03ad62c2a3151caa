package kinesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// Consumer is how the shards of a source are read.
type Consumer string

const (
	Shared Consumer = "shared"  // GetRecords, whose limits all readers of a shard share (default)
	FanOut Consumer = "fan-out" // SubscribeToShard by a registered consumer, with limits of its own
)

const (
	registerTimeout = time.Minute // until a consumer must be ACTIVE. Usually it takes seconds
	registerPoll    = time.Second // between looks at it, half a second more or less
)

// consumers are the registered consumers of the streams that are read by fan-out,
// looked up or registered when they are first needed.
type consumers struct {
	mu sync.Mutex
	of map[consumerKey]*consumer
}

// consumerKey is a stream: one that is created anew has lost its consumers.
type consumerKey struct {
	stream  string // ARN
	created int64
}

type consumer struct {
	finding chan struct{} // one-slot lock around the calls
	arn     string        // empty: not looked up, or found to be gone
	err     error         // of the latest look-up
	failed  time.Time
}

// consumer is the ARN of the stream's consumer, which is ACTIVE or was when it was
// looked up. All shards of a stream wait for one look-up.
func (s *Source) consumer(ctx context.Context, st *stream) (string, error) {
	if arn := s.namedConsumer(st); arn != "" {
		return arn, nil
	}
	c := s.consumers.get(st)
	select {
	case c.finding <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.finding }()
	if arn, err := s.consumers.known(c); arn != "" || err != nil {
		return arn, err
	}
	arn, err := s.activeConsumer(ctx, st)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	s.consumers.mu.Lock()
	defer s.consumers.mu.Unlock()
	c.arn, c.err, c.failed = arn, err, time.Now()
	return arn, err
}

// namedConsumer is the ARN that the options give for a stream.
func (s *Source) namedConsumer(st *stream) string {
	if arn := s.opts.ConsumerARNs[st.arn]; arn != "" {
		return arn
	}
	return s.opts.ConsumerARNs[st.name]
}

func (c *consumers) get(st *stream) *consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[consumerKey]*consumer{}
	}
	key := consumerKey{st.arn, st.created}
	if c.of[key] == nil {
		c.of[key] = &consumer{finding: make(chan struct{}, 1)}
	}
	return c.of[key]
}

// known is what the latest look-up found. A failure stands for a while, or each shard
// of the stream would wait for one of its own, one after the other.
func (c *consumers) known(of *consumer) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.err != nil && time.Since(of.failed) < registerTimeout/2 {
		return "", of.err
	}
	return of.arn, nil
}

// forget has a consumer looked up anew that the service did not find, unless another
// shard's reader has done so since.
func (c *consumers) forget(st *stream, arn string) {
	of := c.get(st)
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.arn == arn {
		of.arn = ""
	}
}

// activeConsumer finds the consumer by its name, registers it if it is not there, and
// waits until it is ACTIVE. Another worker may do the same at the same time.
func (s *Source) activeConsumer(ctx context.Context, st *stream) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, registerTimeout, errConsumerSlow)
	defer cancel()
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("consumer %s of stream %s: %w", s.opts.ConsumerName, st.name, err)
	}
	for {
		d, err := s.opts.Client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{StreamARN: &st.arn, ConsumerName: &s.opts.ConsumerName}, noRetry)
		var gone *types.ResourceNotFoundException
		switch {
		case err == nil && d.ConsumerDescription.ConsumerStatus == types.ConsumerStatusActive:
			return aws.ToString(d.ConsumerDescription.ConsumerARN), nil
		case errors.As(err, &gone):
			_, err = s.opts.Client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: &st.arn, ConsumerName: &s.opts.ConsumerName}, noRetry)
		}
		if err != nil && !passing(err) {
			return fail(registerHint(err))
		}
		// CREATING, DELETING, registered just now by this worker or another, or throttled.
		if wait(ctx, registerPoll/2+rand.N(registerPoll)) != nil {
			if context.Cause(ctx) != errConsumerSlow {
				return "", ctx.Err()
			}
			if err != nil {
				return fail(fmt.Errorf("%w; the latest answer: %w", errConsumerSlow, err))
			}
			return fail(errConsumerSlow)
		}
	}
}

var errConsumerSlow = fmt.Errorf("it is not ACTIVE after %s", registerTimeout)

// passing reports whether a call about a consumer may succeed later: throttled, over
// the five that may be CREATING, registered by another worker at the same time, or
// not answered at all.
func passing(err error) bool {
	var limit *types.LimitExceededException
	var used *types.ResourceInUseException
	if errors.As(err, &limit) || errors.As(err, &used) {
		return true
	}
	return !permanent(err) && !isRefusal(err)
}

// isRefusal reports whether the service understood the call and will not carry it out.
func isRefusal(err error) bool {
	var invalid *types.InvalidArgumentException
	var validation *types.ValidationException
	return errors.As(err, &invalid) || errors.As(err, &validation)
}

func registerHint(err error) error {
	var denied *types.AccessDeniedException
	if errors.As(err, &denied) {
		return fmt.Errorf("%w: allow kinesis:DescribeStreamConsumer and kinesis:RegisterStreamConsumer, or name the ARN of a consumer that the stream's owner registered", err)
	}
	return err
}

// wait waits, and returns ctx's error if that ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Deregister removes the consumers that this application registered with the source's
// streams, by their name, whichever worker or run did it: the service bills a consumer
// for as long as it is there. Consumers that the options name by ARN are not ours and
// stay. Removed are the ARNs of those that were there. The other streams' are removed
// when one can't be; readers that still run register theirs again.
func (s *Source) Deregister(ctx context.Context) (removed []string, err error) {
	streams, err := s.resolve(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, st := range streams {
		if s.namedConsumer(st) != "" {
			continue
		}
		arn, err := s.deregister(ctx, st)
		if err != nil {
			errs = append(errs, fmt.Errorf("deregister consumer %s of stream %s: %w", s.opts.ConsumerName, st.name, err))
		} else if arn != "" {
			removed = append(removed, arn)
		}
	}
	return removed, errors.Join(errs...)
}

// deregister removes one consumer, which must be ACTIVE for that; a consumer that is
// not there is nothing to do.
func (s *Source) deregister(ctx context.Context, st *stream) (arn string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, registerTimeout, errConsumerSlow)
	defer cancel()
	for {
		d, err := s.opts.Client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{StreamARN: &st.arn, ConsumerName: &s.opts.ConsumerName})
		var gone *types.ResourceNotFoundException
		switch {
		case errors.As(err, &gone):
			return "", nil
		case err != nil:
			return "", err
		}
		arn := aws.ToString(d.ConsumerDescription.ConsumerARN)
		_, err = s.opts.Client.DeregisterStreamConsumer(ctx, &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn})
		switch {
		case errors.As(err, &gone):
			return "", nil
		case err == nil:
			s.consumers.forget(st, arn)
			return arn, nil
		case d.ConsumerDescription.ConsumerStatus == types.ConsumerStatusActive:
			return "", err
		}
		if wait(ctx, registerPoll) != nil {
			return "", context.Cause(ctx)
		}
	}
}
