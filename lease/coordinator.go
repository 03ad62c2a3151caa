package lease

import (
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
)

// ActionKind says what to do with a lease.
type ActionKind uint8

const (
	Create   ActionKind = iota
	Take                // nobody holds it, or its holder has stopped renewing
	Steal               // its holder has more than its share and does not give it up
	Delete              // finished, its children progressed, and the service has forgotten it
	Release             // held by this worker, and another one lacks it: stop reading it, commit, give it back
	Announce            // this worker lacks leases: write Text as the signal of the row
)

func (k ActionKind) String() string {
	return [...]string{"create", "take", "steal", "delete", "release", "announce"}[k]
}

// Action is one thing to do. Lease is the row as it was seen, or to create.
type Action struct {
	Kind  ActionKind
	Lease Lease
	Text  string // of Announce
}

// Coordinator decides what one worker does about leases. It does no I/O, reads no
// clock and starts nothing; one goroutine calls it. What it remembers between
// calls is what it saw change, and when, on this worker's own clock.
//
// Among kinetl's workers leases move by consent. A worker that lacks some, and finds
// none free, announces itself on the first row of the table; workers look at that
// row every Poll, read the table when its signal changes, and release what they have
// beyond their share. A worker that stops releases all and announces that. Only from
// one that does not answer for the failover time does another steal.
//
// While a worker of another kind holds a lease, KCL's way applies (R22), see likeKCL.
type Coordinator struct {
	Worker    string
	Failover  time.Duration // a row unchanged for so long belongs to nobody
	MaxLeases int           // most leases that this worker takes; 0: no limit

	seen      map[string]sighting
	releasing map[string]bool    // held, and asked to be released
	callers   map[string]calling // who announced itself, by worker
	signal    string             // as it was last seen
	signalKey string             // the row that it is on
	listened  bool               // signal has been seen once
	number    uint64             // of this worker's last call
	called    time.Time          // when that was
	asked     int                // calls since it lacks leases
	lacking   time.Time          // since when this worker lacks leases that nobody gives up; zero: it does not
	stole     time.Time
	expiry    time.Duration // after the last Step, when the first lease of another expires if it stays as it is; 0: none
}

// sighting is what one look at the table after the other told of a row.
type sighting struct {
	owner   string
	counter int64
	at      time.Time // when owner or counter were seen to change
	free    time.Time // since when it could have been taken; zero: it can't be
	renewed bool      // by this owner, in this worker's sight
}

// calling is the last call of a worker, and when it was heard.
type calling struct {
	call
	at time.Time // zero: it was there already when this worker began to listen
}

// Step decides, from one consistent read of the lease table and a listing of
// shards. The listing may be empty: nothing is then created or deleted. held are
// the keys that this worker is running. Actions are ordered: ancestors are created
// first.
func (c *Coordinator) Step(now time.Time, leases []Lease, listing Listing, held []string, start Start) []Action {
	c.observe(now, leases)
	c.listen(now, leases)
	var actions []Action
	missing := Missing(leases, listing, start)
	for _, l := range missing {
		actions = append(actions, Action{Kind: Create, Lease: l})
	}
	for _, l := range forgotten(leases, listing.Shards) {
		actions = append(actions, Action{Kind: Delete, Lease: l})
	}
	t := c.table(now, leases, missing, listing.Shards, held)
	if t.foreign {
		return append(actions, c.likeKCL(now, t)...)
	}
	return append(actions, c.balance(now, t)...)
}

// Wait is how long after a Step the next one is due, when nothing else happens. A
// worker that dies right after a renewal is missed within 1.4 failover times: 0.4 until
// others have seen that renewal, and a whole one from there, to the moment.
func (c *Coordinator) Wait() time.Duration {
	if !c.lacking.IsZero() {
		return c.Poll() // what others release is to be taken at once
	}
	if c.expiry > 0 {
		return min(c.expiry, c.Failover*2/5)
	}
	return c.Failover * 2 / 5
}

// Poll is how often to read the row that SignalKey names.
func (c *Coordinator) Poll() time.Duration { return c.Failover / 10 }

// SignalKey is the row that carries the signal; empty while the table has none.
func (c *Coordinator) SignalKey() string { return c.signalKey }

// News reports whether a signal differs from the one that the last Step saw: then a
// Step is due.
func (c *Coordinator) News(signal string) bool { return signal != c.signal }

// Goodbye is the signal to write once this worker, which is stopping, has released
// its leases: others then take them at once.
func (c *Coordinator) Goodbye(now time.Time) string { return c.call(now, 0) }

// observe notes when each row changed, on this worker's own clock. Clocks of other
// hosts are never compared: a row says that its owner lives by changing.
func (c *Coordinator) observe(now time.Time, leases []Lease) {
	next := make(map[string]sighting, len(leases))
	for _, l := range leases {
		s, ok := c.seen[l.Key]
		if !ok || s.counter != l.Counter || s.owner != l.Owner {
			s = sighting{owner: l.Owner, counter: l.Counter, at: now, renewed: ok && s.owner == l.Owner}
		}
		next[l.Key] = s
	}
	c.seen = next
}

// Sighted is since when a row has stood as the last Step saw it, on this worker's clock,
// and whether its owner has renewed it in this worker's sight.
func (c *Coordinator) Sighted(key string) (since time.Time, renewed bool) {
	s := c.seen[key]
	return s.at, s.renewed
}

// listen takes in the signal. A call counts once it was seen to come: what stood
// there when this worker began may be of last year.
func (c *Coordinator) listen(now time.Time, leases []Lease) {
	if len(leases) == 0 {
		c.listened = true // to an empty table: what will stand there comes later
		return
	}
	first := slices.MinFunc(leases, func(a, b Lease) int { return strings.Compare(a.Key, b.Key) })
	c.signalKey = first.Key
	news := first.Signal != c.signal || !c.listened
	c.signal = first.Signal
	if c.callers == nil {
		c.callers = map[string]calling{}
	}
	maps.DeleteFunc(c.callers, func(_ string, k calling) bool { return now.Sub(k.at) > 10*c.Failover })
	if calls, ok := parseSignal(first.Signal); ok && news {
		for _, k := range calls {
			if k.worker == c.Worker || k.number <= c.callers[k.worker].number {
				continue
			}
			heard := calling{k, now}
			if !c.listened {
				heard.at = time.Time{}
			}
			c.callers[k.worker] = heard
		}
	}
	c.listened = true
}

// waiting is the workers that announced within the failover time that they lack
// leases, and how many.
func (c *Coordinator) waiting(now time.Time) map[string]int {
	out := map[string]int{}
	for w, k := range c.callers {
		if k.want > 0 && now.Sub(k.at) < c.Failover {
			out[w] = k.want
		}
	}
	return out
}

// call is the signal with this worker's word on it. It repeats those that still wait:
// two workers that write at the same time then lose neither's for long.
func (c *Coordinator) call(now time.Time, want int) string {
	var calls []call
	waiting := c.waiting(now)
	for _, w := range slices.Sorted(maps.Keys(waiting)) {
		calls = append(calls, c.callers[w].call)
	}
	c.number++
	c.called = now
	return formatSignal(append(calls, call{c.Worker, c.number, want}))
}

// onSignal reports whether this worker's last call still stands in the signal.
func (c *Coordinator) onSignal() bool {
	calls, _ := parseSignal(c.signal)
	return slices.ContainsFunc(calls, func(k call) bool { return k.worker == c.Worker && k.number == c.number })
}

// table is the leases that matter to a decision.
type table struct {
	foreign bool               // a worker of another kind holds one
	open    []Lease            // not finished, of streams that are listed
	ready   map[string]bool    // of open, by key: all parents are finished
	free    []Lease            // ready, and nobody's
	mine    []Lease            // run here, those that are being released included
	others  map[string][]Lease // open, by the worker that lives and holds them
}

// table sorts the leases. What can't be told from a row's owner and counter is left
// out: it is open, and neither free nor anybody's.
func (c *Coordinator) table(now time.Time, leases, missing []Lease, shards []Shard, held []string) table {
	c.expiry = 0
	t := table{ready: map[string]bool{}, others: map[string][]Lease{}}
	runs := make(map[string]bool, len(held))
	for _, key := range held {
		runs[key] = true
	}
	maps.DeleteFunc(c.releasing, func(key string, _ bool) bool { return !runs[key] })
	for _, l := range readable(leases, missing) {
		t.ready[l.Key] = true
	}
	for _, l := range known(leases, shards) {
		if l.Ended() || l.Unreadable != "" {
			continue
		}
		t.open = append(t.open, l)
		s := c.seen[l.Key]
		free := time.Time{}
		switch {
		case runs[l.Key]:
			t.mine = append(t.mine, l)
		case !c.takeable(now, l):
			t.foreign = t.foreign || l.Foreign
			owner := l.Owner
			if l.CheckpointOwner != "" {
				owner = l.CheckpointOwner
			}
			t.others[owner] = append(t.others[owner], l)
			if left := s.at.Add(c.Failover).Sub(now); left > 0 && (c.expiry == 0 || left < c.expiry) {
				c.expiry = left
			}
		case t.ready[l.Key]:
			t.free = append(t.free, l)
			free = s.free
			if free.IsZero() {
				free = now
			}
		}
		s.free = free
		c.seen[l.Key] = s
	}
	c.shuffle(t.free)
	return t
}

// handOff is how many failover times a lease that one KCL 3 worker hands to another
// is left alone for without a change. Their leader forces a hand-off after 30 s and a
// failover time of 10 s; who was to finish it is gone by then.
const handOff = 4

// takeable reports whether a lease that this worker does not run is nobody's.
func (c *Coordinator) takeable(now time.Time, l Lease) bool {
	unchanged := now.Sub(c.seen[l.Key].at)
	if l.CheckpointOwner != "" {
		return unchanged >= handOff*c.Failover
	}
	// Owned by this worker but not run: an earlier take whose answer was lost.
	return l.Owner == "" || l.Owner == c.Worker || l.OwnerGone || unchanged >= c.Failover
}

// room cuts n to what MaxLeases leaves.
func (c *Coordinator) room(n, mine int) int {
	if c.MaxLeases > 0 {
		n = min(n, c.MaxLeases-mine)
	}
	return max(n, 0)
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

func actions(kind ActionKind, leases []Lease) (out []Action) {
	for _, l := range leases {
		out = append(out, Action{Kind: kind, Lease: l})
	}
	return out
}

// readable is the leases of shards that are not finished and whose parents all
// are. A parent without a row was finished and cleaned up, or lies before the start,
// unless it is to get one.
func readable(leases, missing []Lease) []Lease {
	open := map[string]bool{}
	for _, l := range missing {
		open[l.Key] = true
	}
	for _, l := range leases {
		open[l.Key] = !l.Ended()
	}
	var ready []Lease
	for _, l := range leases {
		blocked := l.Ended() || l.Unreadable != ""
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
	return slices.DeleteFunc(slices.Clone(leases), func(l Lease) bool { return !streams[Group(l.Key)] })
}
