package kinetl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Consumer reads a source as one member of a group of workers that share a lease
// store. It runs one function per shard that it holds; parents run to their end
// before children start, whoever runs them.
type Consumer struct {
	Source Source
	Leases lease.Store
	Config ConsumerConfig
	until  time.Time // what arrived then or later is not read; zero: all is
}

// ConsumerConfig configures a Consumer. Zero fields take the defaults named.
type ConsumerConfig struct {
	Worker    string        // unique per process; must be set. End it in something random (R21)
	Start     lease.Start   // where an application begins that has no leases; default lease.TrimHorizon. An instant for lease.Latest is taken from the service's clock
	Failover  time.Duration // a worker silent for so long has lost its leases; default 10 s
	MaxLeases int           // most leases this worker takes; default no limit
	Discovery time.Duration // how often shards are listed; default 30 s. The end of a shard lists at once
	Once      bool          // return when every listed shard is finished or was caught up since the start (R25)
	Observe   func(Event)   // called from many goroutines; must not block
}

func (c ConsumerConfig) withDefaults() ConsumerConfig {
	if c.Start.Checkpoint == "" {
		c.Start.Checkpoint = lease.TrimHorizon
	}
	if c.Failover == 0 {
		c.Failover = 10 * time.Second
	}
	if c.Discovery == 0 {
		c.Discovery = 30 * time.Second
	}
	return c
}

// LeaseKey is the key of a shard's lease: account, stream name, creation time and
// shard id, as KCL writes it for applications that read several streams.
func LeaseKey(s ShardID) string {
	account := "000000000000"
	if f := strings.SplitN(s.Stream, ":", 6); len(f) == 6 {
		account = f[4]
	}
	return fmt.Sprintf("%s:%s:%d:%s", account, s.StreamName(), s.Created, s.Shard)
}

// Run calls fn once for every shard that this worker comes to hold, each call in a
// goroutine of its own, and returns when all have returned. When ctx ends, shards
// are asked to stop and their leases are released. A shard whose lease is lost has
// its context cancelled with cause ErrLeaseLost; the others go on. What fn returns
// because its context ended is no failure.
//
// Run returns nil when ctx ended or, with Once, when everything was read; the
// first error of an fn, which stops all; or an error of the first reading of leases
// and shards. Later ones are reported as events and repeated.
func (c *Consumer) Run(ctx context.Context, fn func(context.Context, *Shard) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{
		Consumer: *c,
		fn:       fn,
		held:     map[string]*keeper{},
		wake:     make(chan struct{}, 1),
		goal:     time.Now(),
	}
	r.Config = c.Config.withDefaults()
	if !c.until.IsZero() && c.until.Before(r.goal) {
		r.goal = c.until
	}
	r.observe = observer(r.Config.Observe)
	r.coordinator = lease.Coordinator{Worker: r.Config.Worker, Failover: r.Config.Failover, MaxLeases: r.Config.MaxLeases}
	defer func() {
		cancel()
		r.wg.Wait()
		if err == nil {
			err = r.failure() // of an fn that failed while it stopped
		}
	}()

	for ctx.Err() == nil {
		done, err := r.sync(ctx)
		if err := r.failure(); err != nil {
			return err
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case done:
			return r.halted()
		case err != nil && !r.synced:
			return err
		case err != nil:
			r.observe.emit(Event{Kind: EventRetrying, Reason: "reading leases and shards", Err: err})
		}
		r.pause(ctx)
	}
	return nil
}

// run is the state of one Run. The fields above mu belong to Run's goroutine.
type run struct {
	Consumer
	fn          func(context.Context, *Shard) error
	observe     observer
	coordinator lease.Coordinator
	wg          sync.WaitGroup
	wake        chan struct{} // a shard ended, was caught up, halted or failed
	goal        time.Time     // with Once, a shard that was caught up then or later is done
	synced      bool
	listing     Listing
	listed      map[string]ShardInfo // of the listing, by lease key
	streams     map[string]ShardID   // a shard of the listing for each lease.Group
	listedAt    time.Time            // on this worker's clock; zero: list again
	fresh       bool                 // listed after leases was read
	opened      opened
	leases      []lease.Lease
	leased      map[string]lease.Lease // leases, by key

	mu     sync.Mutex
	held   map[string]*keeper
	relist bool
	err    error
}

func (r *run) pause(ctx context.Context) {
	t := time.NewTimer(r.Config.Failover / 2)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-r.wake:
	}
}

func (r *run) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *run) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// sync reads leases and shards, carries out what the coordinator decides, and
// reports whether a run with Once is done.
func (r *run) sync(ctx context.Context) (done bool, err error) {
	if r.leases, err = r.Leases.List(ctx); err != nil {
		return false, fmt.Errorf("list leases: %w", err)
	}
	r.leased = make(map[string]lease.Lease, len(r.leases))
	for _, l := range r.leases {
		r.leased[l.Key] = l
	}
	if err := r.list(ctx); err != nil {
		if !r.synced || ctx.Err() != nil {
			return false, err
		}
		// The shards that are known go on: those of a worker that died can't wait.
		r.observe.emit(Event{Kind: EventRetrying, Reason: "listing shards", Err: err})
	}
	start, listing, err := r.startAndShards(ctx)
	if err != nil {
		return false, err
	}
	r.synced = true
	acted := false
	for _, a := range r.coordinator.Step(time.Now(), r.leases, listing, r.heldKeys(), start) {
		did, err := r.act(ctx, a)
		if err != nil && !errors.Is(err, lease.ErrLost) {
			return false, fmt.Errorf("%s lease %s: %w", a.Kind, a.Lease.Key, err)
		}
		acted = acted || did
	}
	if acted {
		r.poke() // what was created now can be taken at once
		return false, nil
	}
	r.observe.emit(Event{Kind: EventSynced})
	return r.Config.Once && r.complete(), nil
}

// list refreshes the listing when it is due.
func (r *run) list(ctx context.Context) error {
	r.mu.Lock()
	due := r.relist || r.listedAt.IsZero() || time.Since(r.listedAt) >= r.Config.Discovery
	r.relist, r.fresh = false, false
	r.mu.Unlock()
	if !due {
		return nil
	}
	at := time.Now()
	listing, err := r.Source.Shards(ctx, time.Time{})
	if err != nil {
		r.listSoon()
		return fmt.Errorf("list shards: %w", err)
	}
	r.listing, r.listedAt, r.fresh = listing, at, true
	r.listed, r.streams = make(map[string]ShardInfo, len(listing.Shards)), map[string]ShardID{}
	for _, s := range listing.Shards {
		key := LeaseKey(s.ID)
		r.listed[key], r.streams[lease.Group(key)] = s, s.ID
	}
	return nil
}

// startAndShards translates the listing for the coordinator. Where the application
// begins at an instant and shards have neither a lease nor a leased relative, it
// asks the service which of them were open then; the instant is the one that the
// table already holds, so a first start that was cut short goes on from the same.
func (r *run) startAndShards(ctx context.Context) (lease.Start, lease.Listing, error) {
	start := r.Config.Start
	if start.Checkpoint == lease.Latest && start.Instant.IsZero() {
		start.Instant = r.listing.At
	}
	out := lease.Listing{At: r.listing.At}
	for _, s := range r.listing.Shards {
		key := LeaseKey(s.ID)
		out.Shards = append(out.Shards, lease.Shard{Key: key, Group: lease.Group(key), ID: s.ID.Shard, Parents: s.Parents, OpenAtStart: true})
	}
	if start.Checkpoint == lease.TrimHorizon || len(lease.Missing(r.leases, out, start)) == 0 {
		return start, out, nil
	}
	instant := start.Instant
	for _, l := range r.leases {
		if !l.Start.IsZero() && l.Start.Before(instant) {
			instant = l.Start
		}
	}
	if !r.opened.instant.Equal(instant) || !r.opened.listed.Equal(r.listedAt) {
		// Shards that were closed then never get a lease: without this memory each
		// step would ask for them again.
		answer, err := r.Source.Shards(ctx, instant)
		if err != nil {
			return start, out, fmt.Errorf("list shards open at %s: %w", instant.UTC().Format(time.RFC3339), err)
		}
		r.opened = opened{instant, r.listedAt, map[string]bool{}}
		for _, s := range answer.Shards {
			r.opened.keys[LeaseKey(s.ID)] = true
		}
	}
	for i := range out.Shards {
		out.Shards[i].OpenAtStart = r.opened.keys[out.Shards[i].Key]
	}
	start.Instant = instant
	return start, out, nil
}

// opened is the shards that were open at an instant, asked for with a listing.
type opened struct {
	instant, listed time.Time
	keys            map[string]bool
}

func (r *run) heldKeys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]string, 0, len(r.held))
	for k := range r.held {
		keys = append(keys, k)
	}
	return keys
}

// act does one action and reports whether it tried: a lease of a stream that is not
// listed has nothing to read.
func (r *run) act(ctx context.Context, a lease.Action) (bool, error) {
	switch a.Kind {
	case lease.Create:
		return true, r.Leases.Create(ctx, a.Lease)
	case lease.Delete:
		return true, r.Leases.Delete(ctx, a.Lease)
	case lease.Announce:
		return false, r.Leases.Signal(ctx, a.Lease.Key, a.Text)
	case lease.Release:
		r.release(a.Lease.Key)
		return false, nil
	}
	info, listed := r.info(a.Lease.Key)
	if !listed && !r.left(info, a.Lease) {
		return false, nil
	}
	attempt := time.Now()
	next := a.Lease.TakenBy(r.Config.Worker)
	lookAgain(&next)
	got, err := r.Leases.Update(ctx, a.Lease, next)
	if err != nil {
		return true, err
	}
	s := &Shard{Info: info, Parents: r.parents(info), Unlisted: !listed}
	r.hold(ctx, s, got, attempt)
	return true, nil
}

// release asks the function of a held shard to stop; its lease is then given back.
func (r *run) release(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, held := r.held[key]; held {
		k.stop()
	}
}

// info is the shard of a lease. One that has left the listing is known by name, as
// long as the listing has another of its stream.
func (r *run) info(key string) (info ShardInfo, listed bool) {
	if info, listed = r.listed[key]; listed {
		return info, true
	}
	group := lease.Group(key)
	if sibling, ok := r.streams[group]; ok {
		info = ShardInfo{ID: sibling.Sibling(key[len(group):]), Closed: true}
	}
	return info, false
}

// left reports whether a shard that is not in the listing has left its stream,
// rather than come since: the listing may be older than the lease.
func (r *run) left(info ShardInfo, l lease.Lease) bool {
	if info.ID.Stream == "" {
		return false
	}
	if !r.fresh {
		r.listSoon()
		return false
	}
	return r.listing.At.Sub(l.Created) > shortestRetention
}

// shortestRetention is how long a shard is listed at least. Source: the shortest
// retention period of a Kinesis stream.
const shortestRetention = 24 * time.Hour

// listSoon makes the next sync list the shards.
func (r *run) listSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relist = true
}

// parents says what the table must know about the shard's parents (R8): those that
// are listed must be finished in it. A parent without a lease was finished and
// cleaned up, or lies before the start; one that ended without kinetl's mark was
// finished by another system.
func (r *run) parents(info ShardInfo) []ParentClaim {
	var out []ParentClaim
	for _, p := range info.Parents {
		id := info.ID.Sibling(p)
		if _, listed := r.info(LeaseKey(id)); !listed {
			continue
		}
		l, leased := r.leased[LeaseKey(id)]
		out = append(out, ParentClaim{Shard: id, Ended: !leased || l.Ended() && l.Sink.ID == ""})
	}
	return out
}

// hold runs fn for a lease just taken, and the keeper of its row beside it.
func (r *run) hold(ctx context.Context, s *Shard, l lease.Lease, attempt time.Time) {
	shardCtx, cancel := context.WithCancelCause(ctx)
	k := newKeeper(r.Leases, l, r.Config.Failover, attempt, func() { cancel(ErrLeaseLost) })
	k.changed, k.stop = r.poke, func() { cancel(nil) }
	if r.Config.Once {
		k.goal = r.goal
	}
	s.keeper = k
	r.mu.Lock()
	r.held[l.Key] = k
	r.mu.Unlock()
	r.observe.emit(Event{Kind: EventLeaseTaken, Shard: s.Info.ID})

	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		defer cancel(nil)
		finished := make(chan error, 1)
		go func() { finished <- r.fn(shardCtx, s) }()
		err := k.run(ctx, finished)
		if ended := shardCtx.Err(); ended != nil && (errors.Is(err, ended) || errors.Is(err, ErrLeaseLost)) {
			err = nil
		}
		r.let(ctx, s, err)
	}()
}

// let ends the holding of a shard whose function returned err.
func (r *run) let(ctx context.Context, s *Shard, err error) {
	var parent *UnfinishedParentError
	if errors.As(err, &parent) {
		if err = r.reopen(ctx, parent); err != nil {
			// The shard is taken again, and asks again.
			r.observe.emit(Event{Kind: EventRetrying, Shard: s.Info.ID, Reason: "reopening a parent", Err: err})
			pause(ctx, backoff(4))
			err = nil
		}
	}
	kind := EventLeaseReleased
	switch {
	case s.keeper.isLost():
		kind = EventLeaseLost
	case s.keeper.lease().Ended():
		kind = EventEnded
	}
	r.observe.emit(Event{Kind: kind, Shard: s.Info.ID, Err: err})
	r.mu.Lock()
	delete(r.held, s.keeper.lease().Key)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("shard %s: %w", s.Info.ID, err)
	}
	r.relist = true // after an end there are children; otherwise it costs one call
	r.mu.Unlock()
	r.poke()
}

// reopen takes SHARD_END back from a parent that this table has not finished: the
// table was restored from an older copy, or replaced (R8). Its watermark decides.
func (r *run) reopen(ctx context.Context, e *UnfinishedParentError) error {
	l, found, err := r.Leases.Get(ctx, LeaseKey(e.Parent))
	if err != nil || !found || !l.Ended() {
		return nil // somebody reads it already, or the next sync will tell
	}
	if e.Through == "" {
		inc := NewIncident(IncidentNoWatermark, e.Parent, End, e.Error()+"; the lease says that it was: restore the table, or start with another application name", time.Now())
		return r.incident(ctx, l, inc)
	}
	next := l
	next.Owner = ""
	next.Checkpoint, next.Sub = checkpointOf(e.Through, l)
	next.Sink.Position = string(e.Through)
	next.CaughtUp = time.Time{} // that was the table as it was
	if _, err := r.Leases.Update(ctx, l, next); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("reopen shard %s: %w", e.Parent, err)
	}
	return nil
}

func (r *run) incident(ctx context.Context, l lease.Lease, inc Incident) error {
	next := l
	next.Owner, next.Checkpoint = "", lease.TrimHorizon
	addIncident(&next, inc)
	if _, err := r.Leases.Update(ctx, l, next); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("record incident of shard %s: %w", inc.Shard, err)
	}
	return nil
}
