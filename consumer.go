package kinetl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Consumer reads a source as one member of a group of workers that share a lease
// store. Parents are read to their end before children start, whoever reads them.
// Handle hands over records; Run runs one function per shard, and is for what reads
// the source by itself, as Pipeline does.
type Consumer struct {
	Source Source
	Leases lease.Store
	Config ConsumerConfig
	until  time.Time              // what arrived then or later is not read; zero: all is
	tell   func(*Shard, Incident) // called instead of Observe for what halts a shard that was taken; may be nil
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

	// Watch says whether workers of another kind assign the leases, beside which
	// nobody else may take any (R22): dynamolease.Watch.Look. It is called with what
	// List has just returned before the first lease is taken, every minute, and while
	// a lease is being handed over. Default: nobody else uses the leases.
	Watch func(ctx context.Context, now time.Time, leases []lease.Lease) (lease.Verdict, error)
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

// LeaseKey is the long form of the key of a shard's lease (R23): account, stream name,
// creation time and shard id, as KCL writes it for applications that read several
// streams. In a table with the short form the key is the shard id.
func LeaseKey(s ShardID) string {
	account := "000000000000"
	if f := strings.SplitN(s.Stream, ":", 6); len(f) == 6 {
		account = f[4]
	}
	return fmt.Sprintf("%s:%s:%d:%s", account, s.StreamName(), s.Created, s.Shard)
}

// Run calls fn once for every shard that this worker comes to hold, each call in a
// goroutine of its own, and returns when all have returned. When ctx ends, shards
// are asked to stop, their leases are released, and other workers are told. The
// context of a shard ends earlier when another worker lacks leases, and with cause
// ErrLeaseLost when the lease was lost; other shards go on. What fn returns because
// its context ended is no failure. A shard that an incident halts is held without
// fn, so that no other worker tries (R24).
//
// Run returns nil when ctx ended or, with Once, when everything was read; the
// first error of an fn, which stops all; an error that says so when a KCL 3 fleet
// assigns the leases (R22); or an error of the first reading of leases and shards.
// Later ones are reported as events and repeated.
func (c *Consumer) Run(ctx context.Context, fn func(context.Context, *Shard) error) (err error) {
	parent := ctx
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
		r.goodbye(parent)
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
		case err != nil && !r.synced && !errors.Is(err, lease.ErrBusy):
			return err
		case err != nil:
			r.observe.emit(Event{Kind: EventRetrying, Reason: "reading leases and shards", Err: err})
		}
		if r.verdict.Judgement == lease.Live {
			return r.verdict.Err()
		}
		r.pause(ctx)
	}
	return nil
}

// run is the state of one Run. The fields above mu belong to Run's goroutine; while
// it carries out actions, the goroutines that do so read them.
type run struct {
	Consumer
	fn          func(context.Context, *Shard) error
	observe     observer
	coordinator lease.Coordinator
	wg          sync.WaitGroup
	wake        chan struct{} // a shard ended, was caught up, halted or failed
	goal        time.Time     // with Once, a shard that was caught up then or later is done
	synced      bool
	beaten      bool       // at all that the last sync tried to write, other workers were faster
	form        lease.Form // of the table's keys
	listing     Listing
	listed      map[string]ShardInfo // of the listing, by lease key
	streams     map[string]ShardID   // a shard of the listing for each lease.Group
	names       map[string]ShardID   // likewise, for each account and stream name
	listedAt    time.Time            // on this worker's clock; zero: list again
	fresh       bool                 // listed after leases was read
	opened      opened
	leases      []lease.Lease
	leased      map[string]lease.Lease // leases, by key
	verdict     lease.Verdict
	watched     time.Time            // when verdict was given
	doubted     map[string]time.Time // shards that are open although their leases say SHARD_END: since when
	noted       map[string]bool      // what a person was told
	mixed       atomic.Bool          // workers of another kind hold leases

	mu     sync.Mutex
	held   map[string]*keeper
	relist bool
	err    error
}

// pause waits until the next sync is due: when something happened here, when another
// worker has something to say, or after the coordinator's time.
func (r *run) pause(ctx context.Context) {
	wait := r.coordinator.Wait()
	if r.beaten {
		wait = min(wait, r.coordinator.Poll()) // what others made or took, this worker may lack
	}
	if r.verdict.Judgement == lease.Unknown {
		wait = min(wait, max(r.verdict.Wait-time.Since(r.watched), r.coordinator.Poll()))
	}
	due := time.NewTimer(wait)
	defer due.Stop()
	poll := time.NewTicker(r.coordinator.Poll())
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
			return
		case <-r.wake:
			return
		case <-poll.C:
			if r.news(ctx) {
				return
			}
		}
	}
}

func (r *run) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
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
	if err := r.readLeases(ctx); err != nil {
		return false, err
	}
	if err := r.list(ctx); err != nil {
		if !r.synced || ctx.Err() != nil {
			return false, err
		}
		// The shards that are known go on: those of a worker that died can't wait.
		r.observe.emit(Event{Kind: EventRetrying, Reason: "listing shards", Err: err})
	}
	if err := r.enter(); err != nil {
		return false, err
	}
	if err := r.watch(ctx); err != nil {
		return false, err
	}
	start, listing, err := r.startAndShards(ctx)
	if err != nil {
		return false, err
	}
	r.synced = true
	actions := r.coordinator.Step(time.Now(), r.leases, listing, r.heldKeys(), start)
	doubtful, err := r.doubt(ctx)
	if err != nil {
		return false, err
	}
	undecided, err := r.forsake(ctx)
	if err != nil {
		return false, err
	}
	did, tried, err := r.carryOut(ctx, r.allowed(actions, doubtful))
	if err != nil {
		return false, err
	}
	if did {
		r.poke() // what was created now can be taken at once
	}
	r.beaten = tried && !did
	if tried {
		return false, nil
	}
	r.observe.emit(Event{Kind: EventSynced})
	return r.Config.Once && r.verdict.Judgement == lease.Clear && !undecided && r.complete(), nil
}

func (r *run) readLeases(ctx context.Context) (err error) {
	if r.leases, err = r.Leases.List(ctx); err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	r.leased = make(map[string]lease.Lease, len(r.leases))
	mixed := false
	for _, l := range r.leases {
		r.leased[l.Key] = l
		mixed = mixed || l.Foreign
	}
	r.mixed.Store(mixed)
	return nil
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
