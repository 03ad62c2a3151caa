package kinetl

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// Resolution is what a person decided about an incident. The zero value gives nothing
// up: the condition was put right, or may stand.
type Resolution struct {
	// From gives up what a shard can't be read of, and says where reading goes on:
	// Oldest, at the oldest record there is, or Since an instant. The latest record is
	// the instant of a listing that was made now, by the service's clock. Every
	// worker then means the same (R24).
	From Position
}

// Resolve closes an open incident on every lease that has it (R24). It may be
// called while workers run: the owner of a lease notices that the row was changed, gives
// the shard up, and whoever takes it goes by what the row says then.
//
//   - IncidentExpired needs From. The watermark stays where it is; reading goes on at
//     From, and the table records the gap with the first part.
//   - IncidentCheckpoint goes on at the watermark, if kinetl has read the shard before,
//     and needs From if not.
//   - IncidentGone and IncidentOtherStream need Oldest, and delete the leases of the
//     stream that is no more.
//
// Others take no notice of From. Errors: *UnknownIncidentError, *UnresolvableError, or
// one of the store.
func Resolve(ctx context.Context, store lease.Store, id string, r Resolution) (Resolved, error) {
	if _, err := ParsePosition(string(r.From)); r.From != "" && (err != nil || !r.From.IsStart()) {
		return Resolved{}, fmt.Errorf("resolve incident %s: reading can go on at the oldest record or at an instant, not at %q", id, r.From.String())
	}
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
		if what := unresolvable(inc, l, r); what != "" {
			return done, &UnresolvableError{inc, what}
		}
		if done.Incident.ID == "" {
			done.Incident = inc
		}
		got, err := resolveOn(ctx, store, l, inc, r)
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
func unresolvable(inc Incident, l lease.Lease, r Resolution) string {
	switch inc.Kind {
	case IncidentColumnCapped, IncidentUndecodable:
		return ""
	case IncidentCheckpoint:
		if r.From != "" || l.Sink.Position != "" {
			return ""
		}
		return "kinetl has not read the shard yet: say where to begin (oldest, latest or a time), or correct the lease"
	case IncidentGone, IncidentOtherStream:
		if r.From == Oldest {
			return ""
		}
		return "correct account, region or name of the stream, which the next run finds out, or accept that the other stream is gone (oldest, --accept-gap): its leases are then deleted"
	case IncidentUnreadable:
		return "put the lease right or delete it"
	case IncidentExpired:
		if r.From != "" {
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

func resolveOn(ctx context.Context, store lease.Store, l lease.Lease, inc Incident, r Resolution) (lease.Lease, error) {
	for range resolveTries {
		got, err := resolved(ctx, store, l, inc, r)
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

// resolved writes one lease as it is with the incident resolved.
func resolved(ctx context.Context, store lease.Store, l lease.Lease, inc Incident, r Resolution) (lease.Lease, error) {
	next := l
	removeIncident(&next, inc.ID)
	switch inc.Kind {
	case IncidentGone, IncidentOtherStream:
		return next, store.Delete(ctx, l)
	case IncidentExpired:
		next.Accepted = acceptance(inc.Position, r.From)
	case IncidentCheckpoint:
		p := r.From
		if l.Sink.Position != "" {
			p = Position(l.Sink.Position)
		}
		setStart(&next, p)
	}
	return store.Update(ctx, l, next)
}

// setStart makes a lease say that its shard is to be read from p.
func setStart(l *lease.Lease, p Position) {
	at, isInstant := p.Instant()
	switch {
	case isInstant:
		l.Checkpoint, l.Sub, l.Start = lease.AtTimestamp, 0, at
	case p == Oldest:
		l.Checkpoint, l.Sub, l.Start = lease.TrimHorizon, 0, time.Time{}
	default:
		l.Checkpoint, l.Sub = checkpointOf(p, *l)
	}
}

// acceptance is what a lease says of a gap that a person accepted: after which
// position it lies, as the incident printed it, and where reading goes on if that is
// not the oldest record.
func acceptance(after string, from Position) string {
	if from == Oldest {
		return after
	}
	return after + acceptedFrom + string(from)
}

const acceptedFrom = " -> "

// accepted reads an acceptance. It is of one position only, the one that the person
// saw: the table may have moved since.
func accepted(text string, through Position) (from Position, ok bool) {
	after, start, given := strings.Cut(text, acceptedFrom)
	if after == "" || after != through.String() {
		return "", false
	}
	if !given {
		return Oldest, true
	}
	from, err := ParsePosition(start)
	return from, err == nil && from.IsStart()
}
