package kinetl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// keyOf is the key of a shard's lease in a table whose keys have this form.
func keyOf(s ShardID, form lease.Form) string {
	if form == lease.FormShort {
		return s.Shard
	}
	return LeaseKey(s)
}

// streamID is what a lease keeps of its stream: where keys are long they say it.
func streamID(s ShardID, form lease.Form) string {
	if form == lease.FormShort {
		return lease.StreamID(s.Stream, s.Created)
	}
	return ""
}

// key is the key of a shard's lease.
func (r *run) key(s ShardID) string { return keyOf(s, r.form) }

// list refreshes the listing when it is due.
func (r *run) list(ctx context.Context) error {
	r.mu.Lock()
	due := r.relist || r.listedAt.IsZero() || time.Since(r.listedAt) >= r.Config.Discovery
	r.relist, r.fresh = false, false
	r.mu.Unlock()
	if !due {
		return nil
	}
	at := time.Now()
	listing, err := r.Source.Shards(ctx, time.Time{})
	if err != nil {
		r.listSoon()
		return fmt.Errorf("list shards: %w", err)
	}
	r.listing, r.listedAt, r.fresh = listing, at, true
	return nil
}

// enter settles the form of the table's keys, which is a property of the table (R23),
// and looks at the leases and the listing side by side.
func (r *run) enter() error {
	form, err := lease.FormOf(r.leases)
	if err != nil {
		return err
	}
	if form == lease.FormNone {
		form = lease.FormLong
	}
	if form == lease.FormShort {
		if err := oneStream(r.listing.Shards); err != nil {
			return err
		}
	}
	if form != r.form || r.fresh {
		r.form = form
		r.listed, r.streams = make(map[string]ShardInfo, len(r.listing.Shards)), map[string]ShardID{}
		for _, s := range r.listing.Shards {
			key := r.key(s.ID)
			r.listed[key], r.streams[lease.Group(key)] = s, s.ID
		}
	}
	return r.createdAnew()
}

// oneStream refuses several streams on a table whose keys don't name any.
func oneStream(shards []ShardInfo) error {
	seen := map[string]bool{}
	for _, s := range shards {
		seen[s.ID.StreamName()] = true
		if first := shards[0].ID; s.ID.Stream != first.Stream || s.ID.Created != first.Created {
			seen[s.ID.Stream] = true // of another account or region
		}
	}
	if len(seen) <= 1 {
		return nil
	}
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("the lease table has keys of KCL's single-stream form (bare shard ids), which serve one stream, and these are read: %s: name one stream in the source, or give the pipeline another application", strings.Join(names, ", "))
}

// createdAnew looks for leases of a stream that is listed under another creation time,
// and that only KCL has written, where the stream has no other: they may as well have
// been given a wrong creation epoch by the application, which KCL takes on trust, and to
// begin anew would repeat everything. kinetl's own leases are left to forsake.
func (r *run) createdAnew() error {
	if r.form != lease.FormLong || !r.fresh {
		return nil
	}
	r.names = map[string]ShardID{}
	for group, id := range r.streams {
		r.names[nameOf(group)] = id
	}
	used := map[string]bool{} // streams that have leases by the name under which they are listed
	for _, l := range r.leases {
		used[lease.Group(l.Key)] = true
	}
	for _, l := range r.leases {
		id, anew := r.anew(l)
		if anew && l.Created.IsZero() && l.Sink == (lease.Sink{}) && !used[lease.Group(LeaseKey(id))] {
			return fmt.Errorf("lease table: %s is of a stream %s that was created at another time than the one read now (%d): KCL's application was given another creation epoch, or the stream was deleted and created anew: delete its leases to read the stream from the start position, or give the pipeline another application", l.Key, id.StreamName(), id.Created)
		}
	}
	return nil
}

// anew reports whether an open lease is of a stream that was deleted and created anew,
// and returns a shard of the one that is listed now.
func (r *run) anew(l lease.Lease) (now ShardID, is bool) {
	if r.form != lease.FormLong || l.Ended() || l.Unreadable != "" {
		return ShardID{}, false
	}
	group := lease.Group(l.Key)
	if _, listed := r.streams[group]; listed {
		return ShardID{}, false
	}
	now, is = r.names[nameOf(group)]
	return now, is
}

// nameOf is account and stream name of a group of long keys.
func nameOf(group string) string {
	name := strings.TrimSuffix(group, ":")
	return name[:strings.LastIndexByte(name, ':')+1]
}

// note tells a person something, once.
func (r *run) note(about, text string) {
	if r.first(about + text) {
		r.observe.emit(Event{Kind: EventNote, Reason: text})
	}
}

// first reports whether it is asked this for the first time.
func (r *run) first(what string) bool {
	if r.noted == nil {
		r.noted = map[string]bool{}
	}
	told := r.noted[what]
	r.noted[what] = true
	return !told
}

// leaseListing is a listing in the coordinator's words.
func leaseListing(listing Listing, form lease.Form) lease.Listing {
	out := lease.Listing{At: listing.At, Shards: make([]lease.Shard, 0, len(listing.Shards))}
	for _, s := range listing.Shards {
		key := keyOf(s.ID, form)
		out.Shards = append(out.Shards, lease.Shard{
			Key: key, Group: lease.Group(key), ID: s.ID.Shard, Parents: s.Parents, OpenAtStart: true,
			Stream: streamID(s.ID, form), StartingHashKey: s.StartingHashKey, EndingHashKey: s.EndingHashKey,
		})
	}
	return out
}

// startAndShards translates the listing for the coordinator. Where the application
// begins at an instant and shards have neither a lease nor a leased relative, it
// asks the service which of them were open then; the instant is the one that the
// table already holds, so a first start that was cut short goes on from the same.
func (r *run) startAndShards(ctx context.Context) (lease.Start, lease.Listing, error) {
	start := r.Config.Start
	if start.Checkpoint == lease.Latest && start.Instant.IsZero() {
		start.Instant = r.listing.At
	}
	out := leaseListing(r.listing, r.form)
	if start.Checkpoint == lease.TrimHorizon || len(lease.Missing(r.leases, out, start)) == 0 {
		return start, out, nil
	}
	instant := start.Instant
	for _, l := range r.leases {
		if !l.Start.IsZero() && l.Start.Before(instant) {
			instant = l.Start
		}
	}
	if !r.opened.instant.Equal(instant) || !r.opened.listed.Equal(r.listedAt) {
		// Shards that were closed then never get a lease: without this memory each
		// step would ask for them again.
		answer, err := r.Source.Shards(ctx, instant)
		if err != nil {
			return start, out, fmt.Errorf("list shards open at %s: %w", instant.UTC().Format(time.RFC3339), err)
		}
		r.opened = opened{instant, r.listedAt, map[string]bool{}}
		for _, s := range answer.Shards {
			r.opened.keys[r.key(s.ID)] = true
		}
	}
	for i := range out.Shards {
		out.Shards[i].OpenAtStart = r.opened.keys[out.Shards[i].Key]
	}
	start.Instant = instant
	return start, out, nil
}

// opened is the shards that were open at an instant, asked for with a listing.
type opened struct {
	instant, listed time.Time
	keys            map[string]bool
}

// info is the shard of a lease. One that has left the listing is known by name, as
// long as the listing has another of its stream.
func (r *run) info(key string) (info ShardInfo, listed bool) {
	if info, listed = r.listed[key]; listed {
		return info, true
	}
	group := lease.Group(key)
	if sibling, ok := r.streams[group]; ok {
		info = ShardInfo{ID: sibling.Sibling(key[len(group):]), Closed: true}
	}
	return info, false
}

// left reports whether a shard that is not in the listing has left its stream,
// rather than come since: the listing may be older than the lease.
func (r *run) left(info ShardInfo, l lease.Lease) bool {
	if info.ID.Stream == "" {
		return false
	}
	if !r.fresh {
		r.listSoon()
		return false
	}
	return r.listing.At.Sub(l.Created) > shortestRetention
}

// shortestRetention is how long a shard is listed at least. Source: the shortest
// retention period of a Kinesis stream.
const shortestRetention = 24 * time.Hour

// listSoon makes the next sync list the shards.
func (r *run) listSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relist = true
}
