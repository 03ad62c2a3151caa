package kinetl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// news reports whether another worker has written a signal (R20). That the row can't
// be read is no news: the next sync will tell.
func (r *run) news(ctx context.Context) bool {
	key := r.coordinator.SignalKey()
	if key == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, r.Config.Failover/3)
	defer cancel()
	l, found, err := r.Leases.Get(ctx, key)
	return err == nil && (!found || r.coordinator.News(l.Signal))
}

// goodbye tells the other workers that this one has released its leases, which they
// then take at once. Should it fail, they find out at their next look.
func (r *run) goodbye(ctx context.Context) {
	key := r.coordinator.SignalKey()
	if key == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Config.Failover/3)
	defer cancel()
	err := r.Leases.Signal(ctx, key, r.coordinator.Goodbye(time.Now()))
	if err != nil && !errors.Is(err, lease.ErrLost) {
		r.observe.emit(Event{Kind: EventRetrying, Reason: "telling other workers that this one stopped, they will notice", Err: err})
	}
}

// watch asks whether a KCL 3 fleet assigns the leases (R22), when that is due.
func (r *run) watch(ctx context.Context) error {
	if r.Config.Watch == nil {
		r.verdict.Judgement = lease.Clear
		return nil
	}
	handed := slices.ContainsFunc(r.leases, func(l lease.Lease) bool { return l.CheckpointOwner != "" })
	since := time.Since(r.watched)
	switch {
	case r.watched.IsZero(), since >= time.Minute, handed:
	case (r.verdict.Judgement == lease.Unknown || r.verdict.Wait > 0) && since >= r.verdict.Wait:
	default:
		return nil
	}
	v, err := r.Config.Watch(ctx, time.Now(), r.leases)
	if err != nil {
		if r.watched.IsZero() {
			return err
		}
		// What was found a minute ago holds until it can be looked at again.
		r.observe.emit(Event{Kind: EventRetrying, Reason: "looking for KCL", Err: err})
		return nil
	}
	r.verdict, r.watched = v, time.Now()
	if v.Note != "" && v.Judgement != lease.Live {
		r.note("watch", v.Note)
	}
	return nil
}

// allowed leaves out of the actions what may not be done now: while it is not known
// whether somebody else assigns leases, those that are held are kept and no more; and
// of a table that is of another stream nothing is used.
func (r *run) allowed(actions []lease.Action, doubtful bool) []lease.Action {
	if r.verdict.Judgement == lease.Clear && !doubtful {
		return actions
	}
	return slices.DeleteFunc(actions, func(a lease.Action) bool { return a.Kind != lease.Release })
}

// mostWrites is how many leases are written at once.
const mostWrites = 64

// carryOut does actions: what is to be created in waves, parents first, everything
// else side by side, since a worker may have thousands of leases to take. did reports
// that the table is another one now, tried that it may be.
func (r *run) carryOut(ctx context.Context, actions []lease.Action) (did, tried bool, err error) {
	var mu sync.Mutex
	do := func(a lease.Action) error {
		done, attempted, err := r.act(ctx, a)
		mu.Lock()
		defer mu.Unlock()
		did, tried = did || done, tried || attempted
		if err != nil && !errors.Is(err, lease.ErrLost) {
			return fmt.Errorf("%s lease %s: %w", a.Kind, a.Lease.Key, err)
		}
		return nil
	}
	creates, rest := waves(actions)
	for _, wave := range append(creates, rest) {
		if err := each(wave, mostWrites, do); err != nil {
			return did, tried, err
		}
	}
	return did, tried, nil
}

// waves takes the creations out of the actions and sorts them: those of a wave may be
// made in any order once those of the waves before are (R17).
func waves(actions []lease.Action) (creates [][]lease.Action, rest []lease.Action) {
	depth := map[string]int{}
	for _, a := range actions {
		if a.Kind != lease.Create {
			rest = append(rest, a)
			continue
		}
		n := 0
		for _, p := range a.Lease.Parents {
			if d, made := depth[lease.Group(a.Lease.Key)+p]; made { // ancestors come first
				n = max(n, d+1)
			}
		}
		depth[a.Lease.Key] = n
		if n == len(creates) {
			creates = append(creates, nil)
		}
		creates[n] = append(creates[n], a)
	}
	return creates, rest
}

// each calls do for every item, at most so many at a time, waits for all, and returns
// the first error.
func each[T any](items []T, most int, do func(T) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	slots := make(chan struct{}, most)
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(item); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}
