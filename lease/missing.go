package lease

import (
	"slices"
	"strings"
	"time"
)

// Listing is the shards that a service listed, and its clock when it did.
type Listing struct {
	At     time.Time
	Shards []Shard
}

// Shard is a shard as the coordinator sees it.
type Shard struct {
	Key     string   // of its lease
	Group   string   // what its parents share with it: the key up to the shard id
	ID      string   // shard id
	Parents []string // shard ids
	// OpenAtStart tells that the shard was open at the instant at which reading
	// begins. It matters only while Start is an instant.
	OpenAtStart bool

	Stream                         string // StreamID, where keys have the short form; else empty
	StartingHashKey, EndingHashKey string // as the service lists them; may be empty
}

// Start is where the first worker of an application begins to read a stream.
type Start struct {
	Checkpoint string    // TrimHorizon, Latest or AtTimestamp
	Instant    time.Time // what Latest and AtTimestamp stand for
}

// Missing is the rows to create, ancestors first (R17, R19).
//
// A shard gets no row if a descendant has one: it was finished and its row cleaned
// up, and reading it again would repeat it. But nobody cleans up, not KCL either, while a
// child has not begun: such a row was deleted by hand, of a shard that may not have been
// read to its end, and is made again. A shard with a leased ancestor starts
// at its beginning. Any other shard starts where the application starts; if that
// is an instant, only shards open then get a row, because an older one holds only
// what came before, and its child would start at its own beginning, before the
// instant.
func Missing(leases []Lease, listing Listing, start Start) []Lease {
	byKey := make(map[string]Shard, len(listing.Shards))
	for _, s := range listing.Shards {
		byKey[s.Key] = s
	}
	leased := make(map[string]bool, len(leases))
	hasLeasedDescendant := map[string]bool{}
	var markAncestors func(group string, parents []string)
	markAncestors = func(group string, parents []string) {
		for _, p := range parents {
			key := group + p
			if !hasLeasedDescendant[key] {
				hasLeasedDescendant[key] = true
				markAncestors(group, byKey[key].Parents)
			}
		}
	}
	for _, l := range leases {
		leased[l.Key] = true
		markAncestors(Group(l.Key), l.Parents)
	}
	instants, awaited := oldestInstants(leases), awaitedParents(leases)

	var out []Lease
	done := map[string]bool{} // visited; value: has a row, seen or to be made
	var visit func(s Shard) bool
	visit = func(s Shard) bool {
		if has, ok := done[s.Key]; ok {
			return has
		}
		done[s.Key] = leased[s.Key]
		ancestor := false
		for _, p := range s.Parents {
			if parent, listed := byKey[s.Group+p]; listed {
				ancestor = visit(parent) || ancestor
			}
			ancestor = ancestor || leased[s.Group+p]
		}
		if leased[s.Key] || hasLeasedDescendant[s.Key] && !awaited[s.Key] {
			// Without a row of its own it was dealt with before the start or cleaned up
			// since; its children are then not at their beginning by right.
			return leased[s.Key]
		}
		l := Lease{
			Key: s.Key, Parents: slices.Sorted(slices.Values(s.Parents)), Checkpoint: TrimHorizon, Created: listing.At,
			Stream: s.Stream, StartingHashKey: s.StartingHashKey, EndingHashKey: s.EndingHashKey,
		}
		if !ancestor && start.Checkpoint != TrimHorizon && (s.OpenAtStart || !awaited[s.Key]) {
			if !s.OpenAtStart {
				return false
			}
			l.Checkpoint, l.Start = start.Checkpoint, start.Instant
			if t, ok := instants[s.Group]; ok {
				l.Start = t
			}
		}
		out = append(out, l)
		done[s.Key] = true
		return true
	}
	ordered := slices.Clone(listing.Shards)
	slices.SortFunc(ordered, func(a, b Shard) int { return strings.Compare(a.Key, b.Key) })
	for _, s := range ordered {
		visit(s)
	}
	return out
}

// awaitedParents is the shards that a child waits for whose row nobody has ever held. A
// row that was itself made again, after those of its children, awaits nothing: its own
// parents may have been cleaned up long ago.
func awaitedParents(leases []Lease) map[string]bool {
	oldestChild := map[string]time.Time{}
	for _, l := range leases {
		for _, p := range l.Parents {
			key := Group(l.Key) + p
			if t, ok := oldestChild[key]; !ok || l.Created.Before(t) {
				oldestChild[key] = l.Created
			}
		}
	}
	out := map[string]bool{}
	for _, l := range leases {
		child, has := oldestChild[l.Key]
		if madeAgain := has && child.Before(l.Created); madeAgain || l.Checkpoint != TrimHorizon || l.Owner != "" || l.Counter > 0 || l.Unreadable != "" {
			continue
		}
		for _, p := range l.Parents {
			out[Group(l.Key)+p] = true
		}
	}
	return out
}

// oldestInstants is, per stream, the oldest instant that a row stands for.
func oldestInstants(leases []Lease) map[string]time.Time {
	out := map[string]time.Time{}
	for _, l := range leases {
		if l.Start.IsZero() {
			continue
		}
		if t, ok := out[Group(l.Key)]; !ok || l.Start.Before(t) {
			out[Group(l.Key)] = l.Start
		}
	}
	return out
}

// forgotten is the rows to delete: finished, no longer listed although the stream
// is, and every child has got beyond its start. Until then the row is what tells a
// finished shard from one that was never read. An open incident keeps its row.
func forgotten(leases []Lease, shards []Shard) []Lease {
	listed, streams := map[string]bool{}, map[string]bool{}
	for _, s := range shards {
		listed[s.Key], streams[s.Group] = true, true
	}
	waiting := map[string]bool{} // has a child that is still at its start
	children := map[string]bool{}
	for _, l := range leases {
		for _, p := range l.Parents {
			children[Group(l.Key)+p] = true
			if IsSentinel(l.Checkpoint) {
				waiting[Group(l.Key)+p] = true
			}
		}
	}
	var out []Lease
	for _, l := range leases {
		if l.Ended() && l.Incident == "" && !listed[l.Key] && streams[Group(l.Key)] && children[l.Key] && !waiting[l.Key] {
			out = append(out, l)
		}
	}
	return out
}

// Ending is what must be in the table before a shard that was read to its end may
// say SHARD_END, so that KCL workers beside kinetl's go on from it: rows to create,
// ancestors first, and the shard ids for Lease.Children. leases and listing must
// have been read after the end was confirmed.
//
// KCL learns of children from the worker that finished their parent, deletes a
// finished row once childShardIds tells it who follows, and takes a parent without a
// row for finished: a child's row must not come before those of its other parents, nor
// these before those of their own, and so on. Where reading is far behind, none of them
// may have one yet.
// A child that has left the listing was there long enough for somebody else to see.
func Ending(key string, leases []Lease, listing Listing, start Start) (create []Lease, children []string) {
	id := key[len(Group(key)):]
	byKey := make(map[string]Shard, len(listing.Shards))
	for _, s := range listing.Shards {
		byKey[s.Key] = s
	}
	family := map[string]bool{}
	var enter func(s Shard)
	enter = func(s Shard) {
		if family[s.Key] {
			return
		}
		family[s.Key] = true
		for _, p := range s.Parents {
			if parent, listed := byKey[s.Group+p]; listed {
				enter(parent)
			}
		}
	}
	for _, s := range listing.Shards {
		if s.Group == Group(key) && slices.Contains(s.Parents, id) {
			children = append(children, s.ID)
			enter(s)
		}
	}
	for _, l := range Missing(leases, listing, start) {
		if family[l.Key] {
			create = append(create, l)
		}
	}
	slices.Sort(children)
	return create, children
}
