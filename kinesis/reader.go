package kinesis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/wire"
)

const (
	callsPerSecond = 5                      // GetRecords per shard. Source: Kinesis quotas
	maxIdle        = 2 * time.Second        // between calls on a shard that stays at its tip
	maxLightCalls  = 64                     // at once: calls that bring next to nothing
	maxBackoff     = 10 * time.Second       // after calls that failed again and again
	maxFailures    = 16                     // in a row, some 90 s, before they are reported
	maxLimit       = 10_000                 // records per call. Source: GetRecords
	firstLimit     = 500                    // records of the first call
	shardRate      = 2_000_000              // bytes a second that a shard gives. Source: Kinesis quotas
	decodeFactor   = 2                      // memory of a call, in bytes per byte of data: base64, and the records' frames
	idlePageBytes  = 4 << 10                // reserved for a page that will probably be empty
	emptiesToIdle  = 5                      // pages without records until pauses grow
	idleTick       = 25 * time.Millisecond  // of the calls on idle shards: a process that wakes up for one makes all that are due
	firstBackoff   = 200 * time.Millisecond // after the first call that failed
)

// reader polls one shard. One goroutine uses it.
type reader struct {
	source *Source
	stream *stream
	id     kinetl.ShardID
	resume kinetl.Resume

	after     kinetl.Position // everything up to here was returned
	iterator  string          // empty: to be opened at after
	unproven  bool            // no page has shown yet that nothing was trimmed after the resume position
	trimmed   bool            // the service does not know the resume position, which is accepted: begin at the oldest record
	skipping  bool            // records up to after may come again
	ended     bool            // the service gave no next iterator
	confirmed bool            // and said which shards follow
	closed    bool            // ListShards did, before what was read since

	limit    int32
	average  int64 // bytes of a record, rounded up
	nextCall time.Time
	failures int
	empties  int
	begun    bool // a page was read
	left     bool // the source's crew
}

// Read opens a shard; see kinetl.Source. The first call is made by the first Next.
func (s *Source) Read(_ context.Context, shard kinetl.ShardID, from kinetl.Resume) (kinetl.Reader, error) {
	st, err := s.find(shard)
	if err != nil {
		return nil, err
	}
	r := &reader{
		source: s, stream: st, id: shard, resume: from, after: from.After,
		unproven: !from.Accepted, limit: firstLimit, average: 1 << 10,
	}
	if s.opts.Consumer == FanOut {
		return &subscriber{reader: *r}, nil
	}
	s.crew.join()
	return r, nil
}

// Ready waits for the shard's turn: within the reader's share of the service's
// limits, and after the back-off that failed calls ask for.
func (r *reader) Ready(ctx context.Context) (int64, error) {
	if err := r.pause(ctx); err != nil {
		return 0, err
	}
	if r.empties > 0 {
		return idlePageBytes, nil
	}
	return decodeFactor * max(idlePageBytes, min(int64(r.limit)*r.average, 2*r.pageTarget())), nil
}

// pageTarget is the bytes that a page should have at most: what the shard gives
// between two calls, and a quarter more to catch up. Larger pages would be no
// faster and take more memory.
func (r *reader) pageTarget() int64 {
	return int64(shardRate * 1.25 * r.interval().Seconds())
}

// interval is the time between two calls.
func (r *reader) interval() time.Duration {
	return time.Duration(float64(time.Second) / (callsPerSecond * r.source.opts.ReadShare))
}

// Close ends the reader's part in the source's crew.
func (r *reader) Close() error {
	if !r.left {
		r.left = true
		r.source.crew.leave()
	}
	return nil
}

// Next makes one call and repeats it until it is answered.
func (r *reader) Next(ctx context.Context) (kinetl.Fetch, error) {
	if err := r.startExpired(); err != nil {
		return kinetl.Fetch{}, err
	}
	for {
		if r.ended {
			if done, err := r.confirmEnd(ctx); done || err != nil {
				return kinetl.Fetch{}, err
			}
		}
		if err := r.pause(ctx); err != nil {
			return kinetl.Fetch{}, err
		}
		f, err := r.lightCall(ctx)
		if err == nil {
			r.failures = 0
			return f, nil
		}
		if err := r.bear(ctx, err); err != nil {
			return kinetl.Fetch{}, err
		}
	}
}

// lightCall is call, which the source's crew makes where it will bring next to nothing.
func (r *reader) lightCall(ctx context.Context) (f kinetl.Fetch, err error) {
	if r.begun && r.empties == 0 {
		return r.call(ctx)
	}
	if err := r.source.crew.do(ctx, func() { f, err = r.call(ctx) }); err != nil {
		return kinetl.Fetch{}, err
	}
	return f, err
}

// call opens the iterator if there is none, and fetches one page.
func (r *reader) call(ctx context.Context) (kinetl.Fetch, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if r.iterator == "" {
		if err := r.open(ctx); err != nil {
			return kinetl.Fetch{}, err
		}
	}
	asked := time.Now()
	page, err := r.source.getRecords(ctx, r.stream, r.iterator, r.limit)
	if err != nil {
		return kinetl.Fetch{}, err
	}
	if err := r.probe(page); err != nil {
		return kinetl.Fetch{}, err
	}
	f := kinetl.Fetch{Bytes: page.Bytes, Lag: page.Lag, Records: r.unpack(page.Records), Release: page.Release}
	if page.Lag == 0 {
		f.CaughtUp = asked
	}
	r.iterator = strings.Clone(page.Next)
	r.ended = page.Next == ""
	r.confirmed = page.ChildShards > 0
	r.begun = true
	r.adapt(page)
	return f, nil
}

// unpack takes records apart and drops what was returned before: reading resumes
// AT a sequence number because part of its aggregate may be new.
func (r *reader) unpack(records []kinetl.Record) []kinetl.Record {
	if !r.skipping && !slices.ContainsFunc(records, isAggregate) {
		if len(records) > 0 {
			r.after = records[len(records)-1].Position()
		}
		return records
	}
	out := make([]kinetl.Record, 0, len(records))
	for _, rec := range records {
		before := len(out)
		out = unpack(out, rec)
		if r.skipping {
			for before < len(out) && out[before].Position() <= r.after {
				out = append(out[:before], out[before+1:]...)
			}
			r.skipping = len(out) == before
		}
	}
	if len(out) > 0 {
		r.trimmed = false
		r.after = out[len(out)-1].Position()
	}
	return out
}

// open gets an iterator after the last record that was returned, or at the start.
func (r *reader) open(ctx context.Context) error {
	in := &kinesis.GetShardIteratorInput{StreamARN: &r.stream.arn, ShardId: &r.id.Shard}
	seq, _, isRecord := r.after.Sequence()
	at, isInstant := r.after.Instant()
	switch {
	case isRecord && !r.trimmed:
		in.ShardIteratorType, in.StartingSequenceNumber = types.ShardIteratorTypeAtSequenceNumber, &seq
	case isInstant:
		in.ShardIteratorType, in.Timestamp = types.ShardIteratorTypeAtTimestamp, &at
	default:
		in.ShardIteratorType = types.ShardIteratorTypeTrimHorizon
	}
	answer, err := r.source.opts.Client.GetShardIterator(ctx, in, noRetry)
	if err != nil {
		return err
	}
	r.iterator, r.skipping = aws.ToString(answer.ShardIterator), isRecord
	return nil
}

// startExpired refuses to begin at a start that has left the stream: reading would
// begin at the oldest record there is, as if nothing had come before it (R26).
func (r *reader) startExpired() error {
	if !r.unproven || !r.after.IsStart() {
		return nil
	}
	since := r.resume.Listed
	if at, ok := r.after.Instant(); ok {
		since = at
	}
	if r.resume.CaughtUp.After(since) {
		since = r.resume.CaughtUp
	}
	if since.IsZero() || time.Since(since) < r.stream.retention {
		r.unproven = false
		return nil
	}
	return r.expired("")
}

// probe looks at the first page that has records, or that reaches the tip without:
// if the record to resume from is not the first, it has been trimmed, and records
// behind it may have been too, unless the shard was caught up recently enough that
// whatever came since must still be there (R26).
func (r *reader) probe(page *wire.Page) error {
	if !r.unproven || len(page.Records) == 0 && page.Lag > 0 && page.Next != "" {
		return nil
	}
	seq, _, _ := r.after.Sequence()
	first := ""
	if len(page.Records) > 0 {
		first = page.Records[0].Sequence
	}
	if first != seq && time.Since(r.resume.CaughtUp) >= r.stream.retention {
		return r.expired(strings.Clone(first))
	}
	r.unproven = false
	return nil
}

func (r *reader) expired(oldest string) error {
	return &kinetl.ExpiredError{Shard: r.id, After: r.resume.After, CaughtUp: r.resume.CaughtUp, Retention: r.stream.retention, Oldest: oldest}
}

// confirmEnd makes sure that what looks like the end of the shard is one (R5). It is
// when it names the shards that follow. Otherwise the shard must have been listed as
// closed before the answer that ended it was asked for: a missing iterator at one
// moment, a record at the next, and a split after that make a shard that is closed and
// not finished.
func (r *reader) confirmEnd(ctx context.Context) (done bool, err error) {
	if r.confirmed || r.closed {
		return true, io.EOF
	}
	if r.closed, err = r.source.closed(ctx, r.stream, r.id.Shard); err != nil {
		return false, fmt.Errorf("confirm the end of %s: %w", r.id, err)
	}
	r.ended = false // go on after the last record
	return false, nil
}

// bear decides whether a failed call is worth repeating, and waits before it is.
func (r *reader) bear(ctx context.Context, err error) error {
	var expired *kinetl.ExpiredError
	var iterator *types.ExpiredIteratorException
	var invalid *types.InvalidArgumentException
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &expired):
		return err
	case errors.As(err, &iterator):
		r.iterator = "" // a wait of over 5 minutes, for memory or a slow table
		return nil
	case errors.As(err, &invalid) && r.iterator == "" && r.unproven:
		// The sequence number is not one of this shard: the record is gone.
		return r.expired("")
	case errors.As(err, &invalid) && r.iterator == "" && r.resume.Accepted && !r.trimmed && r.after == r.resume.After:
		r.trimmed = true
		return nil
	case permanent(err):
		if _, err := r.source.find(r.id); err != nil {
			return err
		}
		return fmt.Errorf("read %s after %s: %w", r.id, r.after, err)
	case errors.As(err, &invalid):
		r.iterator = ""
		if _, err := r.source.find(r.id); err != nil {
			return err
		}
	}
	r.failures++
	if r.failures > maxFailures {
		return fmt.Errorf("read %s after %s, %d times in a row: %w", r.id, r.after, r.failures, err)
	}
	wait := min(firstBackoff<<min(r.failures-1, 10), maxBackoff)
	r.nextCall = time.Now().Add(wait/2 + rand.N(wait/2))
	return nil
}

// pause waits for the shard's turn.
func (r *reader) pause(ctx context.Context) error {
	wait := time.Until(r.nextCall)
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// adapt sets the time and the size of the next call by what this one brought.
func (r *reader) adapt(page *wire.Page) {
	n := int64(len(page.Records))
	wait := r.interval()
	if n > 0 {
		r.empties = 0
		r.average = max(page.Bytes/n+1, r.average*7/8, 1)
		// A shard gives 2 MB a second; asking sooner after a large page only throttles.
		wait = max(wait, time.Duration(page.Bytes)*time.Second/shardRate)
	} else if page.Lag == 0 {
		r.empties++
		if over := r.empties - emptiesToIdle; over >= 0 {
			wait = max(wait, min(r.source.opts.Idle, wait<<min(over, 8)))
		}
	}
	if r.source.opts.Unpaced {
		wait = 0
		if n == 0 && page.Lag == 0 {
			wait = 20 * time.Millisecond
		}
	}
	fits := min(max(r.pageTarget()/r.average, 1), maxLimit)
	if n >= int64(r.limit) {
		fits = min(fits, 4*int64(r.limit))
	} else if n == 0 && page.Lag == 0 {
		fits = min(fits, max(int64(r.limit)/2, 50))
	}
	r.limit = int32(fits)
	r.nextCall = time.Now().Add(wait)
	if r.empties >= emptiesToIdle {
		since := r.nextCall.Sub(r.source.made)
		r.nextCall = r.source.made.Add(since.Truncate(idleTick) + idleTick)
	}
}
