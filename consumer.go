package kinetl

import (
	"context"
	"encoding/json"
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

// HaltedError is returned by a run with Once whose remaining shards wait for a person.
type HaltedError struct{ Incidents []Incident }

func (e *HaltedError) Error() string {
	return fmt.Sprintf("%d shard(s) are halted by an open incident, the first: %s", len(e.Incidents), e.Incidents[0].Detail)
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
// its context cancelled with cause ErrLeaseLost; the others go on.
//
// Run returns nil when ctx ended or, with Once, when everything was read; the
// first error of an fn, which stops all; or an error of the first reading of leases
// and shards. Later ones are reported as events and repeated.
func (c *Consumer) Run(ctx context.Context, fn func(context.Context, *Shard) error) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{
		Consumer: Consumer{c.Source, c.Leases, c.Config.withDefaults()},
		fn:       fn,
		held:     map[string]*keeper{},
		wake:     make(chan struct{}, 1),
		started:  time.Now(),
	}
	r.observe = observer(r.Config.Observe)
	r.coordinator = lease.Coordinator{Worker: r.Config.Worker, Failover: r.Config.Failover, MaxLeases: r.Config.MaxLeases}
	defer r.wg.Wait()
	defer cancel()

	for {
		done, err := r.sync(ctx)
		if err := r.failure(); err != nil {
			return err
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case done:
			return r.halted(ctx)
		case err != nil && !r.synced:
			return err
		case err != nil:
			r.observe.emit(Event{Kind: EventRetrying, Reason: "reading leases and shards", Err: err})
		}
		r.pause(ctx)
	}
}

// run is the state of one Run. The fields above mu belong to Run's goroutine.
type run struct {
	Consumer
	fn          func(context.Context, *Shard) error
	observe     observer
	coordinator lease.Coordinator
	wg          sync.WaitGroup
	wake        chan struct{} // a shard ended, was caught up, halted or failed
	started     time.Time
	synced      bool
	listing     Listing
	listedAt    time.Time // on this worker's clock; zero: list again
	leases      []lease.Lease

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
	if err := r.list(ctx); err != nil {
		return false, err
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
	return r.Config.Once && r.complete(), nil
}

// list refreshes the listing when it is due.
func (r *run) list(ctx context.Context) error {
	r.mu.Lock()
	due := r.relist || r.listedAt.IsZero() || time.Since(r.listedAt) >= r.Config.Discovery
	r.relist = false
	r.mu.Unlock()
	if !due {
		return nil
	}
	at := time.Now()
	listing, err := r.Source.Shards(ctx, time.Time{})
	if err != nil {
		r.mu.Lock()
		r.relist = true
		r.mu.Unlock()
		return fmt.Errorf("list shards: %w", err)
	}
	r.listing, r.listedAt = listing, at
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
	open, err := r.Source.Shards(ctx, instant)
	if err != nil {
		return start, out, fmt.Errorf("list shards open at %s: %w", instant.UTC().Format(time.RFC3339), err)
	}
	isOpen := map[string]bool{}
	for _, s := range open.Shards {
		isOpen[LeaseKey(s.ID)] = true
	}
	for i := range out.Shards {
		out.Shards[i].OpenAtStart = isOpen[out.Shards[i].Key]
	}
	start.Instant = instant
	return start, out, nil
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

// act does one action and reports whether it tried: a lease of a shard that is not
// listed any more has nothing to read.
func (r *run) act(ctx context.Context, a lease.Action) (bool, error) {
	switch a.Kind {
	case lease.Create:
		return true, r.Leases.Create(ctx, a.Lease)
	case lease.Delete:
		return true, r.Leases.Delete(ctx, a.Lease)
	}
	info, ok := r.info(a.Lease.Key)
	if !ok {
		return false, nil
	}
	attempt := time.Now()
	next := a.Lease
	next.Owner, next.OwnerSwitches = r.Config.Worker, next.OwnerSwitches+1
	got, err := r.Leases.Update(ctx, a.Lease, next)
	if err != nil {
		return true, err
	}
	r.hold(ctx, info, got, attempt)
	return true, nil
}

func (r *run) info(key string) (ShardInfo, bool) {
	for _, s := range r.listing.Shards {
		if LeaseKey(s.ID) == key {
			return s, true
		}
	}
	return ShardInfo{}, false
}

// parents says what the table must know about the shard's parents (R8): those that
// are listed must be finished in it. A parent without a lease was finished and
// cleaned up, or lies before the start; one that ended without kinetl's mark was
// finished by another system.
func (r *run) parents(info ShardInfo) []ParentClaim {
	byKey := map[string]lease.Lease{}
	for _, l := range r.leases {
		byKey[l.Key] = l
	}
	var out []ParentClaim
	for _, p := range info.Parents {
		id := info.ID.Sibling(p)
		if _, listed := r.info(LeaseKey(id)); !listed {
			continue
		}
		l, leased := byKey[LeaseKey(id)]
		out = append(out, ParentClaim{Shard: id, Ended: !leased || l.Ended() && l.Sink.ID == ""})
	}
	return out
}

// hold runs fn for a lease just taken, and the keeper of its row beside it.
func (r *run) hold(ctx context.Context, info ShardInfo, l lease.Lease, attempt time.Time) {
	shardCtx, cancel := context.WithCancelCause(ctx)
	k := newKeeper(r.Leases, l, r.Config.Failover, attempt, func() { cancel(ErrLeaseLost) })
	k.changed = r.poke
	k.watchTip = r.Config.Once
	s := &Shard{Info: info, Parents: r.parents(info), keeper: k}
	r.mu.Lock()
	r.held[l.Key] = k
	r.mu.Unlock()
	r.observe.emit(Event{Kind: EventLeaseTaken, Shard: info.ID})

	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		defer cancel(nil)
		finished := make(chan error, 1)
		go func() { finished <- r.fn(shardCtx, s) }()
		err := k.run(ctx, finished)
		r.let(ctx, s, err)
	}()
}

// let ends the holding of a shard whose function returned err.
func (r *run) let(ctx context.Context, s *Shard, err error) {
	var parent *UnfinishedParentError
	if errors.As(err, &parent) {
		err = r.reopen(ctx, parent)
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
	if _, err := r.Leases.Update(ctx, l, next); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("reopen shard %s: %w", e.Parent, err)
	}
	return nil
}

func (r *run) incident(ctx context.Context, l lease.Lease, inc Incident) error {
	text, err := json.Marshal(inc)
	if err != nil {
		return err
	}
	next := l
	next.Owner, next.Checkpoint, next.Incident = "", lease.TrimHorizon, string(text)
	if _, err := r.Leases.Update(ctx, l, next); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("record incident of shard %s: %w", inc.Shard, err)
	}
	return nil
}

// complete reports whether every listed shard is finished, was caught up since the
// start, or waits for a shard that is halted or paused (R25).
func (r *run) complete() bool {
	byKey := map[string]lease.Lease{}
	for _, l := range r.leases {
		byKey[l.Key] = l
	}
	r.mu.Lock()
	paused := map[string]bool{}
	for key, k := range r.held {
		byKey[key] = k.lease()
		paused[key] = k.isPaused()
	}
	stale := r.relist
	r.mu.Unlock()
	if stale {
		return false // a shard ended since the listing: its children may not be in it
	}
	blocked := map[string]bool{}
	for _, s := range r.listing.Shards { // parents are listed before their children
		key := LeaseKey(s.ID)
		l, ok := byKey[key]
		halted := ok && l.Incident != ""
		for _, p := range s.Parents {
			halted = halted || blocked[lease.Group(key)+p]
		}
		blocked[key] = halted || paused[key]
		if ok && !halted && !l.Ended() && l.CaughtUp.Before(r.started) {
			return false
		}
	}
	return true
}

// halted is the open incidents at the end of a run with Once.
func (r *run) halted(ctx context.Context) error {
	leases, err := r.Leases.List(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	var e HaltedError
	for _, l := range leases {
		var inc Incident
		if l.Incident != "" && json.Unmarshal([]byte(l.Incident), &inc) == nil {
			e.Incidents = append(e.Incidents, inc)
		}
	}
	if len(e.Incidents) == 0 {
		return nil
	}
	return &e
}
