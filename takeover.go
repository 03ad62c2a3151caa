package kinetl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// elsewhere reports whether another system wrote the lease's checkpoint: kinetl notes
// beside each of its own what it stands for (R15).
func elsewhere(l lease.Lease) bool {
	return !lease.IsSentinel(l.Checkpoint) && startOf(l) != Position(l.Sink.Position)
}

// examine settles, in the write that takes a lease, what must be known of it before
// its shard is read: that it fits the shard (R18), else an incident, and which instant
// its start stands for (R19).
func (r *run) examine(l *lease.Lease, info ShardInfo, listed bool) {
	lookAgain(l)
	if isHalted(*l) {
		return
	}
	if l.Stream == "" {
		l.Stream = streamID(info.ID, r.form)
	}
	if listed && l.Created.IsZero() {
		l.Created = r.listing.At // KCL's: what it holds is known from now on (R26)
	}
	if !l.Start.IsZero() || l.Checkpoint != lease.Latest && l.Checkpoint != lease.AtTimestamp {
		if why := unfit(*l, info); why != "" {
			addIncident(l, NewIncident(IncidentCheckpoint, info.ID, startOf(*l), why, time.Now()))
		}
		return
	}
	var ok bool
	if l.Start, ok = r.instantOf(*l); !ok {
		why := fmt.Sprintf("%s: its lease says %s, and KCL keeps the time in the application's own configuration: set startPosition to that time, or say with the resolution where to begin", info.ID, l.Checkpoint)
		addIncident(l, NewIncident(IncidentCheckpoint, info.ID, startOf(*l), why, time.Now()))
	}
}

// unfit says why a checkpoint that another system wrote can't be of the shard, or
// nothing (R18). Read from, it would skip what the shard holds, or repeat it.
func unfit(l lease.Lease, info ShardInfo) string {
	if !elsewhere(l) || l.Ended() {
		return ""
	}
	const do = "the lease may be of another stream, account or region: correct it, give the pipeline another application, or say with the resolution where to begin"
	if seq := l.Checkpoint; seq == "" || len(seq) > MaxSequenceDigits || strings.Trim(seq, "0123456789") != "" {
		return fmt.Sprintf("%s: the checkpoint %s of its lease, which kinetl did not write, is no sequence number: %s", info.ID, quoted([]byte(seq)), do)
	}
	at := At(l.Checkpoint, 0)
	if info.FirstSeq != "" && at < At(info.FirstSeq, 0) || info.LastSeq != "" && at > At(info.LastSeq, 0) {
		last := info.LastSeq
		if last == "" {
			last = "its tip"
		}
		return fmt.Sprintf("%s: the checkpoint %s of its lease, which kinetl did not write, is none of the shard's, which go from %s to %s: %s", info.ID, l.Checkpoint, info.FirstSeq, last, do)
	}
	return ""
}

// instantOf is the instant for a start that KCL wrote without one: the oldest that the
// table has for the stream (R19), the service's clock for LATEST, and what the
// pipeline says for AT_TIMESTAMP.
func (r *run) instantOf(l lease.Lease) (at time.Time, ok bool) {
	for _, have := range r.leases {
		if lease.Group(have.Key) == lease.Group(l.Key) && !have.Start.IsZero() && (at.IsZero() || have.Start.Before(at)) {
			at = have.Start
		}
	}
	switch start := r.Config.Start; {
	case !at.IsZero():
	case start.Checkpoint == l.Checkpoint:
		at = start.Instant
	}
	if at.IsZero() && l.Checkpoint == lease.Latest {
		at = r.listing.At
	}
	return at, !at.IsZero()
}

// How long what a lease says must contradict the listing until it is an incident. A
// source may answer from what it looked up a minute ago.
const doubtful = 2 * time.Minute

// doubt opens incidents on leases that no taker would look at: those of another
// stream in a table that serves one, and those that say SHARD_END of an open shard
// (R18). It reports whether the whole table is in doubt.
func (r *run) doubt(ctx context.Context) (all bool, err error) {
	if r.verdict.Judgement != lease.Clear {
		return false, nil // nothing is used, and the rows are somebody else's to write
	}
	doubted := map[string]time.Time{}
	last := r.doubted
	r.doubted = doubted
	sure := func(key string) bool {
		since, before := last[key]
		if !before {
			since = time.Now()
		}
		doubted[key] = since
		return time.Since(since) >= doubtful
	}
	var incidents []lease.Lease
	var list []Incident
	for _, l := range r.leases {
		info, listed := r.listed[l.Key]
		switch id, known := r.streams[lease.Group(l.Key)]; {
		case l.Unreadable != "":
		case known && l.Stream != "" && l.Stream != streamID(id, r.form):
			all = true
			if first := last == nil; sure(l.Key) || first {
				incidents, list = append(incidents, l), append(list, newOtherStream(l, info.ID, id, time.Now()))
			}
		case listed && l.Ended() && !info.Closed && elsewhere(l):
			if !r.fresh {
				r.listSoon()
				if since, before := last[l.Key]; before {
					doubted[l.Key] = since
				}
			} else if sure(l.Key) {
				why := fmt.Sprintf("%s: its lease, which kinetl did not write, says that the shard was read to its end, and the shard is open: correct the lease, or say with the resolution where to begin", info.ID)
				incidents, list = append(incidents, l), append(list, NewIncident(IncidentCheckpoint, info.ID, End, why, time.Now()))
			}
		}
	}
	for i, l := range incidents {
		if isHalted(l) {
			continue
		}
		next := l
		addIncident(&next, list[i])
		r.observe.emit(Event{Kind: EventIncident, Shard: r.listed[l.Key].ID, Incident: &list[i]})
		got, err := r.Leases.Update(ctx, l, next)
		if errors.Is(err, lease.ErrLost) {
			continue // the next look tells
		}
		if err != nil {
			return all, fmt.Errorf("record incident of lease %s: %w", l.Key, err)
		}
		r.leased[l.Key] = got
	}
	return all, nil
}

// forsake opens an incident on the leases of a stream that was deleted and created anew
// (R26): nobody can read what they stand for, and no taker would look at them. A lease
// whose owner lives is left to it, which meets the missing stream by itself; whether it
// does is not known before a failover time has passed, and a run with Once waits for
// that.
func (r *run) forsake(ctx context.Context) (undecided bool, err error) {
	if r.verdict.Judgement != lease.Clear {
		return false, nil // the rows are somebody else's to write
	}
	for _, l := range r.leases {
		now, anew := r.anew(l)
		if !anew || isHalted(l) {
			continue
		}
		since, renewed := r.coordinator.Sighted(l.Key)
		switch mine := l.Owner == r.Config.Worker; {
		case l.Owner == "" || l.OwnerGone:
		case mine || time.Since(since) < r.Config.Failover:
			undecided = undecided || !mine && !renewed
			continue
		}
		inc := newAnew(l, now, time.Now())
		next := l
		addIncident(&next, inc)
		next.Owner, next.OwnerSwitches = "", 0
		got, err := r.Leases.Update(ctx, l, next)
		if errors.Is(err, lease.ErrLost) {
			continue // the next look tells
		}
		if err != nil {
			return undecided, fmt.Errorf("record incident of lease %s: %w", l.Key, err)
		}
		r.leased[l.Key] = got
		if r.first(inc.ID) {
			r.observe.emit(Event{Kind: EventIncident, Shard: now, Incident: &inc})
		}
	}
	return undecided, nil
}

// newAnew is one incident, however many leases of the stream it is on.
func newAnew(l lease.Lease, now ShardID, at time.Time) Incident {
	group := lease.Group(l.Key)
	old := now.Sibling(l.Key[len(group):])
	inc := NewIncident(IncidentGone, old, startOf(l), fmt.Sprintf(
		"stream %s was deleted and created anew: its leases are of %s, and the one that is there now, created at %d, is read from the start position; what was unread of the old one is gone: accept that, which deletes the old leases; if the source names another region than before, correct it",
		now.StreamName(), strings.TrimSuffix(group, ":"), now.Created), at)
	inc.ID = incidentID(string(IncidentGone), group)
	return inc
}

// newOtherStream is one incident, however many leases it is on.
func newOtherStream(l lease.Lease, shard, now ShardID, at time.Time) Incident {
	if shard.Shard == "" {
		shard = now.Sibling(l.Key)
	}
	inc := NewIncident(IncidentOtherStream, shard, startOf(l), fmt.Sprintf(
		"the leases are of stream %s, and the one that is read is %s: it was deleted and created anew, or the source names another one: give the pipeline another application, or resolve this from the oldest record, which deletes the leases of the other stream",
		l.Stream, lease.StreamID(now.Stream, now.Created)), at)
	inc.ID = incidentID(string(IncidentOtherStream), l.Stream)
	return inc
}

// successors is what the end of a shard must leave in the table where KCL's workers
// go on from it: rows of its children, which it makes, and their ids (R22). It asks
// only while such workers hold leases.
func (s *Shard) successors(ctx context.Context) ([]string, error) {
	r := s.run
	if r == nil || !r.mixed.Load() {
		return nil, nil
	}
	// Read now: the shard has ended since the last sync.
	leases, err := r.Leases.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list leases for the end of shard %s: %w", s.Info.ID, err)
	}
	listing, err := r.Source.Shards(ctx, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("list shards for the end of shard %s: %w", s.Info.ID, err)
	}
	key := s.Lease().Key
	form := lease.FormLong
	if key == s.Info.ID.Shard {
		form = lease.FormShort
	}
	start := r.Config.Start
	if start.Checkpoint == lease.Latest && start.Instant.IsZero() {
		start.Instant = listing.At
	}
	create, children := lease.Ending(key, leases, leaseListing(listing, form), start)
	for _, l := range create {
		if err := r.Leases.Create(ctx, l); err != nil && !errors.Is(err, lease.ErrLost) {
			return nil, fmt.Errorf("create lease %s: %w", l.Key, err)
		}
	}
	return children, nil
}
