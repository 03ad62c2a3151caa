package kinetl

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Shard is a shard whose lease this worker holds. Its methods may be called from
// any goroutine.
type Shard struct {
	Info    ShardInfo
	Parents []ParentClaim // what a destination must know of the shard's parents before it begins
	// Unlisted: the service no longer lists the shard. Nothing can be read of it;
	// its function finds out whether it was finished in time (R26).
	Unlisted bool
	keeper   *keeper
	run      *run
}

// Lease is the row as this worker would write it next.
func (s *Shard) Lease() lease.Lease { return s.keeper.lease() }

// Checkpoint notes that everything through p is durable. It does no I/O: the note
// rides on the next renewal (R21). The end of a shard is noted with Finish. The zero
// Sink is for programs that keep no watermark.
func (s *Shard) Checkpoint(p Position, sink lease.Sink) {
	s.keeper.edit(func(l *lease.Lease) { checkpoint(l, p, sink) })
}

func checkpoint(l *lease.Lease, p Position, sink lease.Sink) {
	l.Checkpoint, l.Sub = checkpointOf(p, *l)
	l.Sink, l.OwnerSwitches = sink, 0
	l.Accepted = "" // the part that went on after the gap has recorded it
}

// Finish writes at once that the shard was read to its end and that all of it is
// durable (R8): its children may then be read, by whichever worker. Where KCL's
// workers share the leases, it first makes those of the children. After an error the
// shard is not finished; Finish may be called again.
func (s *Shard) Finish(ctx context.Context, sink lease.Sink) error {
	children, err := s.successors(ctx)
	if err != nil {
		return err
	}
	s.keeper.edit(func(l *lease.Lease) {
		if len(children) > 0 {
			l.Children = children
		}
		checkpoint(l, End, sink)
	})
	return s.Flush(ctx)
}

// CaughtUp notes that everything that the shard held at instant t is durable. It
// does no I/O.
func (s *Shard) CaughtUp(t time.Time) {
	reached := false
	s.keeper.edit(func(l *lease.Lease) {
		if t.After(l.CaughtUp) {
			reached = l.CaughtUp.Before(s.keeper.goal) && !t.Before(s.keeper.goal)
			l.CaughtUp = t
		}
	})
	if reached {
		s.keeper.changed()
	}
}

// Pause notes that this run reads no further in the shard, nor in its children.
func (s *Shard) Pause() {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	s.keeper.paused = true
}

// Flush writes the notes now. Only programs that can't wait for the next renewal, a
// third of the failover time away, need it.
func (s *Shard) Flush(ctx context.Context) error { return s.keeper.flush(ctx) }

// Halt records an incident on the lease. The caller then waits for its context to
// end; the lease goes on being renewed, so that no other worker tries (R24).
func (s *Shard) Halt(ctx context.Context, inc Incident) error {
	s.keeper.edit(func(l *lease.Lease) { addIncident(l, inc) })
	defer s.keeper.changed()
	return s.keeper.flush(ctx)
}

// Notice records an incident that does not halt. It is written soon; the caller does
// not wait for it.
func (s *Shard) Notice(inc Incident) {
	s.keeper.edit(func(l *lease.Lease) { addIncident(l, inc) })
	select {
	case s.keeper.due <- struct{}{}:
	default:
	}
}

// checkpointOf is the position in KCL's words. Start markers keep the sentinel.
func checkpointOf(p Position, l lease.Lease) (string, uint64) {
	if p == End {
		return lease.ShardEnd, 0
	}
	if seq, sub, ok := p.Sequence(); ok {
		return seq, sub
	}
	switch {
	case lease.IsSentinel(l.Checkpoint):
		return l.Checkpoint, 0
	case p == Oldest:
		return lease.TrimHorizon, 0
	}
	return lease.AtTimestamp, 0
}

// keeper is the one goroutine that writes a lease row while this worker holds it
// (R21). Renewal does not depend on the read path: a blocked table keeps its leases.
type keeper struct {
	store    lease.Store
	failover time.Duration
	lost     func()    // cancels the shard's context
	stop     func()    // asks the shard's function to stop
	changed  func()    // tells the consumer that something worth a look happened
	goal     time.Time // having been caught up then or later is worth a look; zero: never
	requests chan chan error
	due      chan struct{} // write now, nobody waits for it

	mu      sync.Mutex
	bytes   int64       // of records, read since
	since   time.Time   // the last write
	stored  lease.Lease // the row as it was last written or read
	next    lease.Lease // stored plus what is to be written
	trust   time.Time   // the lease is this worker's until then
	unknown bool        // the last write may have happened
	gone    bool
	paused  bool
}

func newKeeper(store lease.Store, l lease.Lease, failover time.Duration, attempt time.Time, lost func()) *keeper {
	return &keeper{
		store: store, failover: failover, lost: lost, changed: func() {},
		requests: make(chan chan error), due: make(chan struct{}, 1), stored: l, next: l, since: time.Now(),
		// Trust counts from the start of the attempt, never from its answer: other
		// workers count from when the row changed, which is before the answer.
		trust: attempt.Add(failover),
	}
}

func (k *keeper) lease() lease.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.next
}

func (k *keeper) isLost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone
}

func (k *keeper) isPaused() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.paused
}

func (k *keeper) edit(f func(*lease.Lease)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.next)
}

// flush asks the keeper's goroutine to write now. After the function of the shard
// returned nobody may call it.
func (k *keeper) flush(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case k.requests <- reply:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run keeps the row until the shard's function finished, then releases it. It
// returns the function's error.
func (k *keeper) run(ctx context.Context, finished <-chan error) error {
	// Writing goes on while the program drains, after ctx has ended.
	ctx = context.WithoutCancel(ctx)
	// Leases that were taken together are not renewed together: thousands at once are
	// more than a partition of DynamoDB takes in a second.
	renew := time.NewTimer(jitter(max(k.renewal(nil), 1)))
	defer renew.Stop()
	for {
		select {
		case <-renew.C:
			renew.Reset(k.renewal(k.write(ctx)))
		case <-k.due:
			renew.Reset(k.renewal(k.write(ctx)))
		case reply := <-k.requests:
			err := k.write(ctx)
			reply <- err
			renew.Reset(k.renewal(err))
		case err := <-finished:
			k.edit(func(l *lease.Lease) { l.Owner = "" })
			_ = k.write(ctx) // not released: it expires
			return err
		}
	}
}

// renewal is how long to wait before the next write: until a third of the failover
// time has passed since the start of the last one that got through, or less after
// one that failed, and never beyond the life of the lease.
func (k *keeper) renewal(err error) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.gone:
		return k.failover / 3
	case err == nil:
		return time.Until(k.trust) - k.failover*2/3
	}
	return min(k.failover/12, time.Until(k.trust))
}

// read notes that records of so many bytes were read.
func (k *keeper) read(bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes += bytes
}

// measure smooths what was read since the last write into the lease's throughput, as KCL
// 3 does: it is the mean of what it was and what this window had. Writes that follow each
// other closely say nothing.
func (k *keeper) measure(now time.Time) {
	window := now.Sub(k.since)
	if window < k.failover/6 {
		return
	}
	rate := float64(k.bytes) / 1024 / window.Seconds()
	if k.next.Throughput > 0 {
		rate = (rate + k.next.Throughput) / 2
	}
	k.next.Throughput = math.Floor(rate*100) / 100 // rounded up it would never become 0
	k.bytes, k.since = 0, now
}

// write stores what is to be stored.
func (k *keeper) write(ctx context.Context) error {
	k.mu.Lock()
	k.measure(time.Now())
	old, next, trust, gone := k.stored, k.next, k.trust, k.gone
	k.mu.Unlock()
	if gone {
		return ErrLeaseLost
	}
	attempt := time.Now()
	ctx, cancel := context.WithDeadline(ctx, trust)
	defer cancel()
	got, err := k.store.Update(ctx, old, next)
	if err != nil {
		got, err = k.lookUp(ctx, old, next, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.stored, k.next.Counter, k.unknown = got, got.Counter, false
		k.trust = attempt.Add(k.failover)
	}
	if errors.Is(err, ErrLeaseLost) || !time.Now().Before(k.trust) {
		k.gone = true
		k.lost()
		return ErrLeaseLost
	}
	return err
}

// lookUp finds out what became of a write that returned an error. A worker id is
// unique to one process and only this goroutine writes the row, so a row that names
// this worker holds this worker's last write, unless an operator edited it.
func (k *keeper) lookUp(ctx context.Context, old, next lease.Lease, cause error) (lease.Lease, error) {
	k.mu.Lock()
	unknown := k.unknown
	k.unknown = k.unknown || !errors.Is(cause, lease.ErrLost)
	k.mu.Unlock()
	row, found, err := k.store.Get(ctx, old.Key)
	switch {
	case err != nil:
		return lease.Lease{}, cause
	case found && row.Counter == old.Counter+1 && sameWrite(row, next):
		return row, nil
	case !found || row.Owner != old.Owner:
		return lease.Lease{}, ErrLeaseLost
	case row.Counter == old.Counter:
		return lease.Lease{}, cause
	case errors.Is(cause, lease.ErrLost) && (!unknown || edited(row, old, next)):
		// An operator resolved an incident: start over with what the row says.
		return lease.Lease{}, ErrLeaseLost
	}
	// An earlier attempt, given up then, got through: go on from it.
	k.mu.Lock()
	k.stored = row
	k.mu.Unlock()
	return lease.Lease{}, cause
}

// edited reports whether a row holds what no write of this worker put there.
func edited(row, old, next lease.Lease) bool {
	return row.Incident != old.Incident && row.Incident != next.Incident ||
		row.Accepted != old.Accepted && row.Accepted != next.Accepted
}

// sameWrite reports whether a row holds what next asked for.
func sameWrite(row, next lease.Lease) bool {
	return row.Checkpoint == next.Checkpoint && row.Sub == next.Sub && row.Incident == next.Incident &&
		row.Accepted == next.Accepted && row.Sink == next.Sink && row.Owner == next.Owner && slices.Equal(row.Children, next.Children)
}
