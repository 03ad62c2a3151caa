package kinetl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kinetl/kinetl/lease"
)

// HaltedError is returned by a run with Once whose remaining shards wait for a person.
type HaltedError struct{ Incidents []Incident }

func (e *HaltedError) Error() string {
	return fmt.Sprintf("%d shard(s) are halted by an open incident, the first: %s", len(e.Incidents), e.Incidents[0].Detail)
}

// complete reports whether every listed shard is finished, was caught up at the goal
// or later, or waits for a shard that is halted or paused (R25).
func (r *run) complete() bool {
	byKey := r.rows()
	r.mu.Lock()
	paused := map[string]bool{}
	for key, k := range r.held {
		paused[key] = k.isPaused()
	}
	stale := r.relist
	r.mu.Unlock()
	if stale {
		return false // a shard ended since the listing: its children may not be in it
	}
	blocked := map[string]bool{}
	for key, l := range byKey { // those that are not listed any more, too
		blocked[key] = l.Incident != ""
	}
	for _, s := range r.listing.Shards { // parents are listed before their children
		key := LeaseKey(s.ID)
		l, ok := byKey[key]
		halted := ok && l.Incident != ""
		for _, p := range s.Parents {
			halted = halted || blocked[lease.Group(key)+p]
		}
		// Another worker's shard that stopped at until says so by this instant.
		blocked[key] = halted || paused[key] || !r.until.IsZero() && l.CaughtUp.Equal(r.until)
		switch {
		case ok && l.Ended() && !s.Closed:
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
	rows := map[string]lease.Lease{}
	for _, l := range r.leases {
		rows[l.Key] = l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, k := range r.held {
		rows[key] = k.lease()
	}
	return rows
}

// halted is the open incidents at the end of a run with Once.
func (r *run) halted() error {
	rows := r.rows()
	var e HaltedError
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		var inc Incident
		if text := rows[key].Incident; text != "" && json.Unmarshal([]byte(text), &inc) == nil {
			e.Incidents = append(e.Incidents, inc)
		}
	}
	if len(e.Incidents) == 0 {
		return nil
	}
	return &e
}
