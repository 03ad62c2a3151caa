package lease

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"
)

// Shard is a shard as the coordinator sees it.
type Shard struct {
	Key     string   // of its lease
	Group   string   // what its parents share with it: the key up to the shard id
	ID      string   // shard id
	Parents []string // shard ids
	// OpenAtStart tells that the shard was open at the instant at which reading
	// begins. It matters only while Start is an instant.
	OpenAtStart bool
}

// Start is where the first worker of an application begins to read a stream.
type Start struct {
	Checkpoint string    // TrimHorizon, Latest or AtTimestamp
	Instant    time.Time // what Latest and AtTimestamp stand for
}

// ActionKind says what to do with a lease.
type ActionKind uint8

const (
	Create ActionKind = iota
	Take              // nobody holds it, or its holder has stopped renewing
	Steal             // its holder has more than its share
	Delete            // finished, its children progressed, and the service has forgotten it
)

func (k ActionKind) String() string { return [...]string{"create", "take", "steal", "delete"}[k] }

// Action is one conditional write: Lease is the row as it was seen, or to create.
type Action struct {
	Kind  ActionKind
	Lease Lease
}

// Coordinator decides what one worker does about leases. It does no I/O, reads no
// clock and starts nothing; one goroutine calls it. What it remembers between
// calls is when it saw each row's counter change.
type Coordinator struct {
	Worker    string
	Failover  time.Duration // a row unchanged for so long belongs to nobody
	MaxLeases int           // most leases that this worker takes; 0: no limit
	seen      map[string]sighting
}

type sighting struct {
	owner   string
	counter int64
	at      time.Time
}

// Listing is the shards that a service listed, and its clock when it did.
type Listing struct {
	At     time.Time
	Shards []Shard
}

// Step decides, from one consistent read of the lease table and a listing of
// shards. The listing may be empty: nothing is then created or deleted. held are
// the keys that this worker is running. Actions are ordered: ancestors are created
// first.
func (c *Coordinator) Step(now time.Time, leases []Lease, listing Listing, held []string, start Start) []Action {
	c.observe(now, leases)
	var actions []Action
	for _, l := range Missing(leases, listing, start) {
		actions = append(actions, Action{Create, l})
	}
	for _, l := range forgotten(leases, listing.Shards) {
		actions = append(actions, Action{Delete, l})
	}
	return append(actions, c.balance(now, known(readable(leases), listing.Shards), held)...)
}

// observe notes when each row changed, on this worker's own clock. Clocks of other
// hosts are never compared: a row says that its owner lives by changing.
func (c *Coordinator) observe(now time.Time, leases []Lease) {
	next := make(map[string]sighting, len(leases))
	for _, l := range leases {
		s, ok := c.seen[l.Key]
		if !ok || s.counter != l.Counter || s.owner != l.Owner {
			s = sighting{l.Owner, l.Counter, now}
		}
		next[l.Key] = s
	}
	c.seen = next
}

func (c *Coordinator) expired(now time.Time, l Lease) bool {
	return l.OwnerGone || now.Sub(c.seen[l.Key].at) >= c.Failover
}

// balance takes what nobody holds up to this worker's share, and steals only when
// there is nothing free and another worker has more than its share.
func (c *Coordinator) balance(now time.Time, ready []Lease, held []string) []Action {
	var free []Lease
	mine, total := 0, 0
	others := map[string][]Lease{}
	runs := make(map[string]bool, len(held))
	for _, key := range held {
		runs[key] = true
	}
	for _, l := range ready {
		total++
		switch {
		case runs[l.Key]:
			mine++
		case l.Owner == "" || l.Owner == c.Worker || c.expired(now, l):
			// Owned by this worker but not run: an earlier take whose answer was lost.
			free = append(free, l)
		default:
			others[l.Owner] = append(others[l.Owner], l)
		}
	}
	workers := len(others) + 1
	share := (total + workers - 1) / workers
	if c.MaxLeases > 0 {
		share = min(share, c.MaxLeases)
	}
	need := share - mine
	if need <= 0 {
		return nil
	}
	c.shuffle(free)
	var actions []Action
	for _, l := range free[:min(need, len(free))] {
		actions = append(actions, Action{Take, l})
	}
	if len(actions) > 0 {
		return actions
	}
	return c.steal(others, mine, total, workers)
}

// steal takes from the most loaded worker, half of the difference at most, so that
// two workers never pass the same lease to and fro.
func (c *Coordinator) steal(others map[string][]Lease, mine, total, workers int) []Action {
	var victim string
	for w, ls := range others {
		if len(ls) > len(others[victim]) || len(ls) == len(others[victim]) && w < victim {
			victim = w
		}
	}
	from := others[victim]
	n := min((len(from)-mine)/2, len(from)-total/workers)
	if c.MaxLeases > 0 {
		n = min(n, c.MaxLeases-mine)
	}
	if n <= 0 {
		return nil
	}
	c.shuffle(from)
	var actions []Action
	for _, l := range from[:n] {
		actions = append(actions, Action{Steal, l})
	}
	return actions
}

// shuffle orders leases differently for each worker, so that workers that start
// together do not all try the same row first.
func (c *Coordinator) shuffle(leases []Lease) {
	rank := func(l Lease) uint64 {
		h := fnv.New64a()
		h.Write([]byte(c.Worker))
		h.Write([]byte(l.Key))
		return h.Sum64()
	}
	slices.SortFunc(leases, func(a, b Lease) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			if ra < rb {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Key, b.Key)
	})
}

// readable is the leases of shards that are not finished and whose parents all
// are. A parent without a row was finished and cleaned up, or lies before the start.
func readable(leases []Lease) []Lease {
	open := map[string]bool{}
	for _, l := range leases {
		open[l.Key] = !l.Ended()
	}
	var ready []Lease
	for _, l := range leases {
		blocked := l.Ended()
		for _, p := range l.Parents {
			blocked = blocked || open[Group(l.Key)+p]
		}
		if !blocked {
			ready = append(ready, l)
		}
	}
	return ready
}

// known leaves out the leases of streams that are not listed: deleted, or created
// anew. Nobody can read them, and as part of a share they would keep a worker from
// what it can read. Without a listing all are known.
func known(leases []Lease, shards []Shard) []Lease {
	if len(shards) == 0 {
		return leases
	}
	streams := map[string]bool{}
	for _, s := range shards {
		streams[s.Group] = true
	}
	return slices.DeleteFunc(leases, func(l Lease) bool { return !streams[Group(l.Key)] })
}

// Group is the part of a lease key that the shards of one stream share.
func Group(key string) string { return key[:strings.LastIndexByte(key, ':')+1] }

// Missing is the rows to create, ancestors first (R17, R19).
//
// A shard gets no row if a descendant has one: it was finished and its row cleaned
// up, and reading it again would repeat it. A shard with a leased ancestor starts
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
	instants := oldestInstants(leases)

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
		if leased[s.Key] || hasLeasedDescendant[s.Key] {
			// Without a row of its own it was dealt with before the start or cleaned up
			// since; its children are then not at their beginning by right.
			return leased[s.Key]
		}
		l := Lease{Key: s.Key, Parents: slices.Sorted(slices.Values(s.Parents)), Checkpoint: TrimHorizon, Created: listing.At}
		if !ancestor && start.Checkpoint != TrimHorizon {
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
