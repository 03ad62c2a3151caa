package kinesis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/wire"
)

const (
	// subscribeGap is the time after a successful SubscribeToShard within which
	// another one for the same consumer and shard is refused. Source: the API reference.
	subscribeGap = 5 * time.Second
	// refusedPause is between calls that are refused because another subscription is
	// younger than that. Source: SubscribeToShard allows a call a second.
	refusedPause = time.Second
	// silence is how long a subscription may have no event until its connection is
	// taken for dead: an idle shard has one every few seconds, and 35 s is what KCL
	// waits. Time in which nobody reads does not count.
	silence = 35 * time.Second
	// spread is what waits are lengthened by at random, at most: the shards of a
	// stream subscribe together, and are cut off together.
	spread = 500 * time.Millisecond
)

var errSilent = fmt.Errorf("no event for %s: the connection is taken for dead", silence)

// subscriber reads one shard by SubscribeToShard. It has the place in the shard, and
// what is made of records, in common with the reader that polls. One goroutine uses
// it and it starts none: an event is read from the connection when it is asked for,
// so what is in memory is one event and the transport's buffers.
//
// A subscription ends after five minutes, or when the service or the network have it
// so; that is routine, and the next one goes on at the event's continuation number,
// which stays in here: it is no position (R3). It is asked for AT that number and not
// after it. The service allows either, and what it says of whether a record may still
// come under the number can be read both ways; a record that comes again is dropped.
type subscriber struct {
	reader

	sub          *wire.Subscription // nil: none is open
	cancel       context.CancelFunc // of sub
	began        time.Time          // when sub was asked for
	events       int                // that sub had
	barren       bool               // none of them had records, and all were at the tip
	consumerARN  string
	continuation string // of the latest event; empty: begin at reader.after
	lookedUp     bool   // the consumer, again, since the latest event
	failed       error  // what Ready met, for Next
}

// Ready waits for an event, whose size it then knows: an idle shard reserves nothing.
func (r *subscriber) Ready(ctx context.Context) (int64, error) {
	if r.failed != nil {
		return idlePageBytes, nil
	}
	size, err := r.await(ctx)
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	r.failed = err
	// The payload is decoded where it lies; the records' frames come on top.
	return max(idlePageBytes, int64(size)*3/2), nil
}

// Next takes the event that Ready waited for.
func (r *subscriber) Next(ctx context.Context) (kinetl.Fetch, error) {
	for {
		if err := r.failed; err != nil {
			r.failed = nil
			return kinetl.Fetch{}, err
		}
		if _, err := r.await(ctx); err != nil {
			return kinetl.Fetch{}, err
		}
		if r.ended {
			if done, err := r.confirmEnd(ctx); done || err != nil {
				return kinetl.Fetch{}, err
			}
			continue
		}
		f, err := r.take(ctx)
		if err == nil {
			return f, nil
		}
		if err := r.bear(ctx, err); err != nil {
			return kinetl.Fetch{}, err
		}
	}
}

// Close ends the subscription.
func (r *subscriber) Close() error {
	r.drop()
	return nil
}

// await subscribes if need be, again and again, until an event waits or the shard has
// ended, and returns the bytes of the event's payload.
func (r *subscriber) await(ctx context.Context) (size int, err error) {
	if err := r.startExpired(); err != nil {
		return 0, err
	}
	for !r.ended {
		if r.sub == nil {
			err = r.subscribe(ctx)
		}
		if r.sub != nil {
			err = r.guard(ctx, func() (err error) {
				size, err = r.sub.Wait()
				return err
			})
		}
		if err == nil {
			return size, nil
		}
		if err := r.bear(ctx, err); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// guard ends the subscription, and with it what f waits for, when ctx ends or when
// f takes longer than the service may be silent.
func (r *subscriber) guard(ctx context.Context, f func() error) error {
	defer context.AfterFunc(ctx, r.cancel)()
	dead := time.AfterFunc(silence, r.cancel)
	err := f()
	switch silent := !dead.Stop(); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case silent:
		return errSilent
	}
	return err
}

// subscribe opens a subscription, which outlives ctx.
func (r *subscriber) subscribe(ctx context.Context) error {
	if err := r.pause(ctx); err != nil {
		return err
	}
	arn, err := r.source.consumer(ctx, r.stream)
	if err != nil {
		return err
	}
	r.consumerARN = arn
	in := &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: &r.id.Shard, StartingPosition: r.start()}
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	r.closed = r.closed || r.source.knownClosed(r.id)
	began := time.Now()
	var sub *wire.Subscription
	err = r.guard(ctx, func() (err error) {
		sub, err = wire.Subscribe(open, r.source.opts.Events, in, noRetry)
		return err
	})
	if err != nil {
		cancel()
		return r.hint(err)
	}
	r.sub, r.began, r.events, r.barren = sub, began, 0, true
	return nil
}

// hint adds what to do to an error of SubscribeToShard.
func (r *subscriber) hint(err error) error {
	var denied *types.AccessDeniedException
	var gone *types.ResourceNotFoundException
	switch {
	case errors.As(err, &denied):
		return fmt.Errorf("%w: allow kinesis:SubscribeToShard on consumer %s, and in its own policy when it belongs to another account", err, r.consumerARN)
	case errors.As(err, &gone) && r.source.namedConsumer(r.stream) != "":
		return fmt.Errorf("%w: look whether consumer %s still exists: a consumer that is registered again has another ARN", err, r.consumerARN)
	}
	return err
}

// start is where to subscribe: where the latest event says, or where the polling
// reader would begin. Records up to reader.after may come again from any of them.
func (r *subscriber) start() *types.StartingPosition {
	seq, _, isRecord := r.after.Sequence()
	at, isInstant := r.after.Instant()
	r.skipping = isRecord
	switch {
	case r.continuation != "":
		return &types.StartingPosition{Type: types.ShardIteratorTypeAtSequenceNumber, SequenceNumber: &r.continuation}
	case isRecord && !r.trimmed:
		return &types.StartingPosition{Type: types.ShardIteratorTypeAtSequenceNumber, SequenceNumber: &seq}
	case isInstant:
		return &types.StartingPosition{Type: types.ShardIteratorTypeAtTimestamp, Timestamp: &at}
	}
	return &types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}
}

// take reads the event that waits.
func (r *subscriber) take(ctx context.Context) (kinetl.Fetch, error) {
	var page *wire.Page
	err := r.guard(ctx, func() (err error) {
		page, err = r.sub.Next()
		return err
	})
	if err != nil {
		return kinetl.Fetch{}, err
	}
	r.events++
	r.failures, r.lookedUp = 0, false
	// An end without children may be none, and then says nothing of what there is.
	if certain := page.Next != "" || page.ChildShards > 0 || r.closed; certain {
		if err := r.probe(page); err != nil {
			page.Release()
			return kinetl.Fetch{}, err
		}
	}
	f := kinetl.Fetch{Bytes: page.Bytes, Lag: page.Lag, Records: r.unpack(page.Records), Release: page.Release}
	r.barren = r.barren && page.Lag == 0 && len(f.Records) == 0
	if page.Lag == 0 {
		// All that is certain of when the event was made: it may have waited for us.
		f.CaughtUp = r.began
	}
	r.continuation = strings.Clone(page.Next)
	if page.Next == "" {
		r.ended, r.confirmed = true, page.ChildShards > 0
		r.drop()
	}
	return f, nil
}

// drop ends the subscription, if there is one, and with it what its connection has
// not delivered. The next one must not come too soon after it.
func (r *subscriber) drop() {
	if r.sub == nil {
		return
	}
	r.cancel()
	r.sub.Close()
	r.sub = nil
	r.notBefore(r.began.Add(subscribeGap))
}

// notBefore puts the next call off until t, and a little more.
func (r *subscriber) notBefore(t time.Time) {
	if t = t.Add(rand.N(spread)); t.After(r.nextCall) {
		r.nextCall = t
	}
}

// bear decides whether to subscribe again after what ended a subscription or refused
// one, and when.
func (r *subscriber) bear(ctx context.Context, err error) error {
	open := r.sub != nil
	if open {
		err = r.hint(err)
		r.drop()
	}
	var expired *kinetl.ExpiredError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &expired):
		return err
	case open && err == io.EOF && r.events > 0:
		// It was open for its five minutes, or was closed by the service before.
		//
		// Servers other than AWS's may say nothing at the end of a shard. If it was
		// listed as closed before we subscribed, and then there was nothing until
		// the end of the subscription, it is finished (R5).
		r.ended = r.barren && r.closed
		return nil
	}
	if again, err := r.refused(err); !again {
		return err
	}
	r.failures++
	if r.failures > maxFailures {
		return fmt.Errorf("read %s after %s, %d times in a row: %w", r.id, r.after, r.failures, err)
	}
	var used *types.ResourceInUseException
	pause := min(firstBackoff<<min(r.failures-1, 10), maxBackoff)
	switch {
	case errors.As(err, &used) && open:
		// Another worker has taken the shard over. Leave it time enough, and the
		// lease time to say so: to take it back at once would go to and fro.
		pause = 2 * subscribeGap
	case errors.As(err, &used):
		pause = 2 * refusedPause
	}
	r.notBefore(time.Now().Add(pause/2 + rand.N(pause/2)))
	return nil
}

// refused tells an error that a further call may not meet from one that it will; the
// latter comes back as it is to be reported.
func (r *subscriber) refused(err error) (again bool, _ error) {
	_, _, isRecord := r.after.Sequence()
	var gone *types.ResourceNotFoundException
	var invalid *types.InvalidArgumentException
	switch {
	case errors.As(err, &invalid) && r.continuation != "":
		r.continuation = "" // begin at the latest record instead
		return true, nil
	case errors.As(err, &invalid) && isRecord && r.unproven:
		// The sequence number is not one of this shard: the record is gone.
		return false, r.expired("")
	case errors.As(err, &invalid) && isRecord && r.resume.Accepted && !r.trimmed && r.after == r.resume.After:
		r.trimmed = true
		return true, nil
	case errors.As(err, &gone) && !r.lookedUp && r.source.namedConsumer(r.stream) == "":
		// The consumer may have been deleted, and is then registered again.
		r.lookedUp = true
		r.source.consumers.forget(r.stream, r.consumerARN)
		return true, nil
	case permanent(err) || isRefusal(err) || keyUnusable(err) || errors.Is(err, errConsumerSlow):
		if _, err := r.source.find(r.id); err != nil {
			return false, err
		}
		return false, fmt.Errorf("read %s after %s: %w", r.id, r.after, err)
	}
	return true, nil
}

// keyUnusable reports whether the stream's KMS key can't be used, and will not be
// until somebody does something about it. Throttling passes.
func keyUnusable(err error) bool {
	var denied *types.KMSAccessDeniedException
	var disabled *types.KMSDisabledException
	var missing *types.KMSNotFoundException
	var state *types.KMSInvalidStateException
	var opt *types.KMSOptInRequired
	return errors.As(err, &denied) || errors.As(err, &disabled) || errors.As(err, &missing) || errors.As(err, &state) || errors.As(err, &opt)
}
