package kinetl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Resolved is an incident that Resolve closed.
type Resolved struct {
	Incident Incident
	Leases   []lease.Lease // that it was on, as written; who owns one takes its shard up anew
}

// UnknownIncidentError: no lease has an open incident with this id.
type UnknownIncidentError struct {
	ID   string
	Open []Incident
}

func (e *UnknownIncidentError) Error() string {
	return fmt.Sprintf("no incident %s is open", e.ID)
}

// UnresolvableError: the incident can't be resolved like this. What says what to do.
type UnresolvableError struct {
	Incident Incident
	What     string
}

func (e *UnresolvableError) Error() string {
	return fmt.Sprintf("incident %s (%s) can't be resolved like this: %s", e.Incident.ID, e.Incident.Kind, e.What)
}

// Resolve closes an open incident on every lease that has it (R24). It may be called
// while workers run: the owner of a lease notices that the row was changed, gives the
// shard up, and whoever takes it goes by what the row says then.
//
// With acceptGap the records that expired after the incident's position are given up:
// reading goes on at the oldest record there is, and the table records the gap with
// the first part. An expired position is resolved only so.
//
// Errors: *UnknownIncidentError, *UnresolvableError, or one of the store.
func Resolve(ctx context.Context, store lease.Store, id string, acceptGap bool) (Resolved, error) {
	leases, err := store.List(ctx)
	if err != nil {
		return Resolved{}, fmt.Errorf("list leases: %w", err)
	}
	var done Resolved
	for _, l := range leases {
		inc, ok := openIncident(l, id)
		if !ok {
			continue
		}
		if what := unresolvable(inc, acceptGap); what != "" {
			return done, &UnresolvableError{inc, what}
		}
		if done.Incident.ID == "" {
			done.Incident = inc
		}
		got, err := resolveOn(ctx, store, l, inc)
		if err != nil {
			return done, fmt.Errorf("resolve incident %s of shard %s: %w", id, inc.Shard, err)
		}
		done.Leases = append(done.Leases, got)
	}
	if len(done.Leases) == 0 {
		return done, &UnknownIncidentError{id, AllIncidents(leases)}
	}
	return done, nil
}

func openIncident(l lease.Lease, id string) (Incident, bool) {
	for _, inc := range OpenIncidents(l) {
		if inc.ID == id {
			return inc, true
		}
	}
	return Incident{}, false
}

// unresolvable says why an incident can't be resolved, or nothing.
func unresolvable(inc Incident, acceptGap bool) string {
	switch inc.Kind {
	case IncidentColumnCapped, IncidentUndecodable:
		return ""
	case IncidentExpired:
		if acceptGap {
			return ""
		}
		return "what expired unread is lost; to go on without it, accept the gap (--accept-gap)"
	case IncidentOtherSink:
		return "point the pipeline at the database or file that its leases stand for, which the next run finds out, or give it another application"
	case IncidentNoWatermark:
		return "restore the table, which the next run finds out, or give the pipeline another application"
	}
	return "this version of kinetl does not know its kind: use the one that wrote it"
}

// resolveTries bounds how often a resolution is repeated because the lease's owner
// wrote first. It renews a few times in a minute.
const resolveTries = 50

func resolveOn(ctx context.Context, store lease.Store, l lease.Lease, inc Incident) (lease.Lease, error) {
	for range resolveTries {
		next := l
		removeIncident(&next, inc.ID)
		if inc.Kind == IncidentExpired {
			next.Accepted = inc.Position
		}
		got, err := store.Update(ctx, l, next)
		if err == nil {
			got.OwnerGone = l.OwnerGone
			return got, nil
		}
		if !errors.Is(err, lease.ErrLost) {
			return lease.Lease{}, err
		}
		row, found, err := store.Get(ctx, l.Key)
		if err != nil {
			return lease.Lease{}, err
		}
		if _, open := openIncident(row, inc.ID); !found || !open {
			return row, nil // somebody else has resolved it
		}
		l = row
		if !pause(ctx, jitter(20*time.Millisecond)) {
			return lease.Lease{}, ctx.Err()
		}
	}
	return lease.Lease{}, lease.ErrLost
}
