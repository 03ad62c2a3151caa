// Package kinesis reads Amazon Kinesis Data Streams: their shards, and the records
// of each shard in order, unpacked.
package kinesis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	smithy "github.com/aws/smithy-go/middleware"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/wire"
)

// callLimit is how long a call may take, its answer included. The HTTP client gives up a
// call whose answer does not begin; without this, one that begins and does not go on
// would stop a shard, or the looking for shards, for ever and without a word. A page of
// 10 MiB over a slow line takes less.
const callLimit = time.Minute

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callLimit)
}

// Options configures a Source. Zero fields take the defaults named.
type Options struct {
	Client  *kinesis.Client // required
	Streams []string        // names or ARNs; ListStreams is then never called. Default: every stream that can be listed
	Pattern *regexp.Regexp  // a stream's whole name must match; default: any
	// ReadShare is the part of a shard's 5 GetRecords calls a second that this
	// reader takes; other consumers of the stream share the rest. Default 0.5.
	ReadShare float64
	// Idle is the longest time between two calls on a shard that has nothing new; pauses
	// grow to it. Default 2 s, which is also the most.
	Idle   time.Duration
	Wire   Wire         // default WireAuto
	Logger *slog.Logger // default none
	// Consumer is how shards are read; default Shared.
	Consumer Consumer
	// ConsumerName is the name under which a consumer is registered with each stream
	// for FanOut: the application's. Required for FanOut where ConsumerARNs has none.
	ConsumerName string
	// ConsumerARNs are consumers that somebody else registered, by the ARN or the name
	// of their stream: for streams of other accounts. They are used as they are, and
	// neither registered nor deregistered.
	ConsumerARNs map[string]string
	// Events is the client for FanOut's SubscribeToShard, whose answers last for
	// minutes: it should speak HTTP/2 where the endpoint does. Default Client.
	Events *kinesis.Client
	// Unpaced reads as fast as the service answers, for a server without limits.
	Unpaced bool
	// Discovery is how often the set of streams is looked up; default 60 s.
	Discovery time.Duration
}

// Source is one stream or several. It implements kinetl.Source.
type Source struct {
	opts      Options
	made      time.Time
	pattern   *regexp.Regexp // anchored
	format    format
	crew      crew      // for Shared
	consumers consumers // for FanOut

	mu           sync.Mutex
	streams      map[string]*stream // by ARN
	lookedUp     time.Time
	resolving    chan struct{}           // one-slot lock around the look-up
	closedShards map[kinetl.ShardID]bool // by the latest listing of all shards
}

// stream is what DescribeStreamSummary says that does not change under one ARN and
// creation time, but for the retention.
type stream struct {
	arn       string
	name      string
	created   int64
	retention time.Duration
	caller    *wire.Caller // of GetRecords
}

// NewSource makes a source. It calls nothing yet.
func NewSource(opts Options) *Source {
	if opts.ReadShare == 0 {
		opts.ReadShare = 0.5
	}
	if opts.Idle <= 0 || opts.Idle > maxIdle {
		opts.Idle = maxIdle
	}
	if opts.Wire == "" {
		opts.Wire = WireAuto
	}
	if opts.Events == nil {
		opts.Events = opts.Client
	}
	if opts.Discovery == 0 {
		opts.Discovery = time.Minute
	}
	s := &Source{opts: opts, made: time.Now(), streams: map[string]*stream{}, resolving: make(chan struct{}, 1)}
	if opts.Pattern != nil {
		s.pattern = regexp.MustCompile("^(?:" + opts.Pattern.String() + ")$")
	}
	return s
}

// Shards lists the shards of all streams; see kinetl.Source.
func (s *Source) Shards(ctx context.Context, openAt time.Time) (kinetl.Listing, error) {
	streams, err := s.resolve(ctx)
	if err != nil {
		return kinetl.Listing{}, err
	}
	var out kinetl.Listing
	for _, st := range streams {
		at, err := s.list(ctx, st, openAt, &out.Shards)
		if err != nil {
			return kinetl.Listing{}, fmt.Errorf("list shards of stream %s: %w", st.name, err)
		}
		if out.At.IsZero() || at.Before(out.At) {
			out.At = at // an instant that lies before each of the answers
		}
	}
	if out.At.IsZero() {
		out.At = time.Now()
	}
	if openAt.IsZero() && s.opts.Consumer == FanOut {
		s.noteClosed(out.Shards)
	}
	return out, nil
}

func (s *Source) noteClosed(shards []kinetl.ShardInfo) {
	closed := map[kinetl.ShardID]bool{}
	for _, info := range shards {
		if info.Closed {
			closed[info.ID] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closedShards = closed
}

// knownClosed reports whether a shard was closed when all shards were last listed.
func (s *Source) knownClosed(id kinetl.ShardID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closedShards[id]
}

// list appends the shards of one stream. The instant is the service's own clock in
// the first answer (R19).
func (s *Source) list(ctx context.Context, st *stream, openAt time.Time, out *[]kinetl.ShardInfo) (time.Time, error) {
	in := &kinesis.ListShardsInput{StreamARN: &st.arn}
	if !openAt.IsZero() {
		in.ShardFilter = &types.ShardFilter{Type: types.ShardFilterTypeAtTimestamp, Timestamp: &openAt}
	}
	var at time.Time
	for {
		answer, err := s.listPage(ctx, in)
		if err != nil {
			return at, err
		}
		if at.IsZero() {
			at = serverTime(answer.ResultMetadata)
		}
		for _, sh := range answer.Shards {
			*out = append(*out, shardInfo(st, sh))
		}
		if answer.NextToken == nil {
			return at, nil
		}
		// A token stands for everything else in the request; the service refuses
		// both together.
		in = &kinesis.ListShardsInput{NextToken: answer.NextToken}
	}
}

func (s *Source) listPage(ctx context.Context, in *kinesis.ListShardsInput) (*kinesis.ListShardsOutput, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return s.opts.Client.ListShards(ctx, in)
}

func shardInfo(st *stream, sh types.Shard) kinetl.ShardInfo {
	info := kinetl.ShardInfo{ID: kinetl.ShardID{Stream: st.arn, Created: st.created, Shard: aws.ToString(sh.ShardId)}}
	for _, p := range []*string{sh.ParentShardId, sh.AdjacentParentShardId} {
		if p != nil {
			info.Parents = append(info.Parents, *p)
		}
	}
	if r := sh.SequenceNumberRange; r != nil {
		info.FirstSeq, info.LastSeq = aws.ToString(r.StartingSequenceNumber), aws.ToString(r.EndingSequenceNumber)
		info.Closed = r.EndingSequenceNumber != nil
	}
	if r := sh.HashKeyRange; r != nil {
		info.StartingHashKey, info.EndingHashKey = aws.ToString(r.StartingHashKey), aws.ToString(r.EndingHashKey)
	}
	return info
}

// serverTime is the Date header of an answer, or this host's clock without one.
func serverTime(m smithy.Metadata) time.Time {
	if t, ok := middleware.GetServerTime(m); ok {
		return t.UTC()
	}
	return time.Now().UTC()
}

// resolve is the streams to read, looked up again when Discovery has passed. When
// a later look-up fails, the known streams go on being read.
func (s *Source) resolve(ctx context.Context) ([]*stream, error) {
	select {
	case s.resolving <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.resolving }()
	s.mu.Lock()
	known, due := s.sorted(), s.lookedUp.IsZero() || time.Since(s.lookedUp) >= s.opts.Discovery
	s.mu.Unlock()
	if !due {
		return known, nil
	}
	found, err := s.lookUp(ctx)
	if err != nil {
		if len(known) > 0 && ctx.Err() == nil && !permanent(err) {
			return known, nil
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams, s.lookedUp = found, time.Now()
	return s.sorted(), nil
}

func (s *Source) sorted() []*stream {
	out := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b *stream) int { return strings.Compare(a.arn, b.arn) })
	return out
}

func (s *Source) lookUp(ctx context.Context) (map[string]*stream, error) {
	names := s.opts.Streams
	if len(names) == 0 {
		var err error
		if names, err = s.listStreams(ctx); err != nil {
			return nil, fmt.Errorf("list streams: %w", err)
		}
	}
	found := map[string]*stream{}
	for _, name := range names {
		if s.pattern != nil && !s.pattern.MatchString(nameOf(name)) {
			continue
		}
		st, err := s.describe(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("describe stream %s: %w", name, err)
		}
		if st != nil {
			found[st.arn] = st
		}
	}
	return found, nil
}

func (s *Source) listStreams(ctx context.Context) ([]string, error) {
	var names []string
	p := kinesis.NewListStreamsPaginator(s.opts.Client, &kinesis.ListStreamsInput{})
	for p.HasMorePages() {
		page, err := nextPage(ctx, p)
		if err != nil {
			return nil, err
		}
		names = append(names, page.StreamNames...)
	}
	return names, nil
}

func nextPage(ctx context.Context, p *kinesis.ListStreamsPaginator) (*kinesis.ListStreamsOutput, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return p.NextPage(ctx)
}

// describe looks a stream up. A stream that was found by listing and is gone or
// not there yet is left out; one that was asked for by name is an error.
func (s *Source) describe(ctx context.Context, name string) (*stream, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	in := &kinesis.DescribeStreamSummaryInput{StreamName: &name}
	if strings.HasPrefix(name, "arn:") {
		in = &kinesis.DescribeStreamSummaryInput{StreamARN: &name}
	}
	answer, err := s.opts.Client.DescribeStreamSummary(ctx, in)
	var gone *types.ResourceNotFoundException
	if errors.As(err, &gone) && len(s.opts.Streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := answer.StreamDescriptionSummary
	if d.StreamStatus == types.StreamStatusCreating || d.StreamStatus == types.StreamStatusDeleting {
		return nil, nil
	}
	return &stream{
		arn: aws.ToString(d.StreamARN), name: aws.ToString(d.StreamName),
		created:   aws.ToTime(d.StreamCreationTimestamp).Unix(),
		retention: time.Duration(aws.ToInt32(d.RetentionPeriodHours)) * time.Hour,
		caller:    wire.NewCaller(s.opts.Client, aws.ToString(d.StreamARN), noRetry),
	}, nil
}

// nameOf is the name in a stream's name or ARN.
func nameOf(stream string) string { return stream[strings.LastIndexByte(stream, '/')+1:] }

// permanent reports whether an error will not go away by itself.
func permanent(err error) bool {
	var gone *types.ResourceNotFoundException
	var denied *types.AccessDeniedException
	return errors.As(err, &gone) || errors.As(err, &denied)
}

// find is a known stream, or *kinetl.GoneError.
func (s *Source) find(id kinetl.ShardID) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.streams[id.Stream]
	if !ok || st.created != id.Created {
		return nil, &kinetl.GoneError{Shard: id}
	}
	return st, nil
}

// closed asks the service whether a shard has an ending sequence number (R5).
func (s *Source) closed(ctx context.Context, st *stream, shard string) (bool, error) {
	var shards []kinetl.ShardInfo
	if _, err := s.list(ctx, st, time.Time{}, &shards); err != nil {
		return false, err
	}
	for _, info := range shards {
		if info.ID.Shard == shard {
			return info.Closed, nil
		}
	}
	// A shard leaves the listing only after it was closed and its records expired.
	return true, nil
}
