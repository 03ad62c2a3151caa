package kinetl

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// HaltedError is returned by a run with Once that leaves incidents open: what they
// halt waits for a person, everything else was loaded.
type HaltedError struct{ Incidents []Incident } // those that halt first

func (e *HaltedError) Error() string {
	halted := 0
	for _, inc := range e.Incidents {
		if inc.Halts {
			halted++
		}
	}
	first := e.Incidents[0].Detail
	if halted == 0 {
		return fmt.Sprintf("everything was loaded, and %d incident(s) are open, the first: %s", len(e.Incidents), first)
	}
	return fmt.Sprintf("%d shard(s) are halted by an open incident, the first: %s", halted, first)
}

// complete reports whether every listed shard is finished, was caught up at the goal
// or later, or waits for a shard that is halted or paused (R25). A shard that a worker
// of KCL's reads is not waited for, nor what descends from it: KCL notes nowhere that it
// has caught up, and what it reads goes where that worker sends it.
func (r *run) complete() bool {
	byKey := r.rows()
	r.mu.Lock()
	paused := map[string]bool{}
	for key, k := range r.held {
		paused[key] = k.isPaused()
		l := byKey[key]
		if _, listed := r.listed[key]; !listed && !l.Ended() && !isHalted(l) && l.CaughtUp.Before(r.goal) {
			r.mu.Unlock()
			return false // its stream is gone, which is about to be an incident
		}
	}
	stale := r.relist
	r.mu.Unlock()
	if stale {
		return false // a shard ended since the listing: its children may not be in it
	}
	blocked := map[string]bool{}
	for key, l := range byKey { // those that are not listed any more, too
		blocked[key] = isHalted(l)
	}
	var elsewhere, kcl []lease.Lease     // what other workers read
	for _, s := range r.listing.Shards { // parents are listed before their children
		key := r.key(s.ID)
		l, ok := byKey[key]
		waits := ok && isHalted(l)
		for _, p := range s.Parents {
			waits = waits || blocked[lease.Group(key)+p]
		}
		// Another worker's shard that stopped at until says so by this instant.
		blocked[key] = waits || paused[key] || !r.until.IsZero() && l.CaughtUp.Equal(r.until)
		switch {
		case ok && l.Ended() && !s.Closed && !isHalted(l):
			// It ended after the listing, in which its children are missing.
			r.listSoon()
			return false
		case !ok || waits || l.Ended() || !l.CaughtUp.Before(r.goal):
		case l.Foreign && r.renews(l):
			kcl, blocked[key] = append(kcl, l), true
		case !r.renews(l):
			return false
		default:
			elsewhere = append(elsewhere, l)
		}
	}
	if len(elsewhere) > 0 {
		if time.Since(r.goal) >= patienceOnce {
			r.note("elsewhere", fmt.Sprintf("waiting for %d shard(s) that other workers hold, until they were read to their tip since this run began: worker %s has %s; a worker that reads by fan-out tells every five minutes", len(elsewhere), elsewhere[0].Owner, elsewhere[0].Key))
		}
		return false
	}
	if len(kcl) > 0 {
		r.note("kcl", fmt.Sprintf("%d shard(s) are read by workers of KCL and were not waited for: worker %s has %s", len(kcl), kcl[0].Owner, kcl[0].Key))
	}
	return true
}

// patienceOnce is after what time a run with Once says that it waits for other workers.
const patienceOnce = 15 * time.Second

// renews reports whether another worker was seen to renew the lease, and has not
// stopped since for as long as makes it expire.
func (r *run) renews(l lease.Lease) bool {
	since, renewed := r.coordinator.Sighted(l.Key)
	return renewed && l.Owner != "" && l.Owner != r.Config.Worker && !l.OwnerGone && time.Since(since) < r.Config.Failover
}

// rows is the leases as this worker knows them: those that it holds as it would
// write them next.
func (r *run) rows() map[string]lease.Lease {
	rows := maps.Clone(r.leased)
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, k := range r.held {
		rows[key] = k.lease()
	}
	return rows
}

// halted is the error of a run with Once that leaves incidents open.
func (r *run) halted() error {
	rows := r.rows()
	var leases []lease.Lease
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		leases = append(leases, rows[key])
	}
	if open := AllIncidents(leases); len(open) > 0 {
		return &HaltedError{open}
	}
	return nil
}
