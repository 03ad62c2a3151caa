package kinetl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// act does one action. did reports that the table is another one now, which is worth a
// look, tried that it may be.
func (r *run) act(ctx context.Context, a lease.Action) (did, tried bool, err error) {
	switch a.Kind {
	case lease.Create:
		err = r.Leases.Create(ctx, a.Lease)
		return err == nil, true, err
	case lease.Delete:
		err = r.Leases.Delete(ctx, a.Lease)
		return err == nil, true, err
	case lease.Announce:
		return false, false, r.Leases.Signal(ctx, a.Lease.Key, a.Text)
	case lease.Release:
		r.release(a.Lease.Key)
		return false, false, nil
	}
	return r.take(ctx, a)
}

// take takes a lease and begins to read its shard. A lease of a stream that is not
// listed has nothing to read, and a shard waits for a parent that a person must see to.
func (r *run) take(ctx context.Context, a lease.Action) (did, tried bool, err error) {
	l := a.Lease
	info, listed := r.info(l.Key)
	if !listed && !r.left(info, l) {
		return false, false, nil
	}
	for _, p := range info.Parents {
		if isHalted(r.leased[r.key(info.ID.Sibling(p))]) {
			return false, false, nil
		}
	}
	if a.Kind == lease.Steal {
		// Its owner lives: it has renewed since the table was read, which may have
		// taken long, and a write over the row as it was then would never succeed.
		row, found, err := r.Leases.Get(ctx, l.Key)
		if err != nil {
			return false, true, err
		}
		if !found || row.Owner != l.Owner || row.CheckpointOwner != l.CheckpointOwner || row.Ended() {
			return false, true, lease.ErrLost
		}
		l = row
	}
	attempt := time.Now()
	next := l.TakenBy(r.Config.Worker)
	r.examine(&next, info, listed)
	got, err := r.Leases.Update(ctx, l, next)
	if err != nil {
		// Another worker was faster, and there may be a lease left that this one lacks.
		return errors.Is(err, lease.ErrLost), true, err
	}
	r.hold(ctx, &Shard{Info: info, Parents: r.parents(info), Unlisted: !listed, run: r}, got, attempt)
	return true, true, nil
}

// errHandedOver is the cause of a shard's context when another worker lacks its lease.
var errHandedOver = errors.New("the lease is handed over")

// release asks the function of a held shard to stop; its lease is then given back.
func (r *run) release(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, held := r.held[key]; held {
		k.stop()
	}
}

// parents says what the table must know about the shard's parents (R8): those that
// are listed must be finished in it. A parent without a lease was finished and
// cleaned up, or lies before the start; one of which another system says that it
// ended was finished there.
func (r *run) parents(info ShardInfo) []ParentClaim {
	var out []ParentClaim
	for _, p := range info.Parents {
		id := info.ID.Sibling(p)
		if _, listed := r.info(r.key(id)); !listed {
			continue
		}
		l, leased := r.leased[r.key(id)]
		out = append(out, ParentClaim{Shard: id, Ended: !leased || l.Ended() && elsewhere(l)})
	}
	return out
}

// hold runs fn for a lease just taken, and the keeper of its row beside it.
func (r *run) hold(ctx context.Context, s *Shard, l lease.Lease, attempt time.Time) {
	shardCtx, cancel := context.WithCancelCause(ctx)
	k := newKeeper(r.Leases, l, r.Config.Failover, attempt, func() { cancel(ErrLeaseLost) })
	k.changed, k.stop = r.poke, func() { cancel(errHandedOver) }
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
		go func() { finished <- r.call(shardCtx, s) }()
		err := k.run(ctx, finished)
		if ended := shardCtx.Err(); ended != nil && (errors.Is(err, ended) || errors.Is(err, ErrLeaseLost) || errors.Is(err, errHandedOver)) {
			err = nil
		}
		r.let(ctx, s, err)
	}()
}

// call runs fn, or holds a shard that is halted.
func (r *run) call(ctx context.Context, s *Shard) error {
	if l := s.Lease(); isHalted(l) {
		for _, inc := range OpenIncidents(l) {
			if r.tell != nil {
				r.tell(s, inc)
			}
			// Told anew by each holder: who watches only this worker must see it too.
			r.observe.emit(Event{Kind: EventIncident, Shard: s.Info.ID, Incident: &inc})
		}
		<-ctx.Done()
		return nil
	}
	return r.fn(ctx, s)
}

// let ends the holding of a shard whose function returned err.
func (r *run) let(ctx context.Context, s *Shard, err error) {
	var parent *UnfinishedParentError
	if errors.As(err, &parent) {
		if err = r.reopen(ctx, s, parent); err != nil {
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
	r.relist = true // after an end there are children; otherwise it costs one call
	r.mu.Unlock()
	if err != nil {
		r.fail(fmt.Errorf("shard %s: %w", s.Info.ID, err))
	}
	r.poke()
}

// reopen takes SHARD_END back from a parent that this table has not finished: the
// table was restored from an older copy, or replaced (R8). Its watermark decides.
func (r *run) reopen(ctx context.Context, child *Shard, e *UnfinishedParentError) error {
	l, found, err := r.Leases.Get(ctx, lease.Group(child.Lease().Key)+e.Parent.Shard)
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
