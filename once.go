package kinetl

import (
	"fmt"
	"maps"
	"slices"

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
// or later, or waits for a shard that is halted or paused (R25).
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
	for _, s := range r.listing.Shards { // parents are listed before their children
		key := r.key(s.ID)
		l, ok := byKey[key]
		halted := ok && isHalted(l)
		for _, p := range s.Parents {
			halted = halted || blocked[lease.Group(key)+p]
		}
		// Another worker's shard that stopped at until says so by this instant.
		blocked[key] = halted || paused[key] || !r.until.IsZero() && l.CaughtUp.Equal(r.until)
		switch {
		case ok && l.Ended() && !s.Closed && !isHalted(l):
			// It ended after the listing, in which its children are missing.
			r.listSoon()
			return false
		case ok && !halted && !l.Ended() && l.CaughtUp.Before(r.goal):
			return false
		}
	}
	return true
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
