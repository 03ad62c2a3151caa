package lease

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// balance is how kinetl's workers share leases among themselves. Shards that are
// finished, or wait for their parents, weigh nothing.
func (c *Coordinator) balance(now time.Time, t table) []Action {
	counts := map[string]int{c.Worker: len(t.mine)}
	total := len(t.mine) + len(t.free)
	for w, leases := range t.others {
		if n := len(t.readyOf(leases)); n > 0 {
			counts[w] = n
			total += n
		}
	}
	waiting := c.waiting(now)
	for w := range waiting {
		counts[w] += 0
	}
	share := shares(counts, total)
	mine := len(t.mine)
	need := c.room(share[c.Worker]-mine, mine)
	l := c.load(t, len(counts))
	if take := c.pick(now, l, t.free, need, mine, len(counts)); len(take) > 0 {
		c.lacking = time.Time{}
		return actions(Take, take)
	}
	if need == 0 {
		c.lacking = time.Time{}
		return c.makeRoom(t, l, waiting, counts, share)
	}
	return c.ask(now, t, need)
}

func (t table) readyOf(leases []Lease) []Lease {
	return slices.DeleteFunc(slices.Clone(leases), func(l Lease) bool { return !t.ready[l.Key] })
}

// shares is how many of the leases each worker should hold: as many as any other, or
// one more. Those that hold most get the one more, so that the fewest leases move.
// Workers that see the same table agree on it, down to the last lease: none takes
// back what it has released for another.
func shares(counts map[string]int, total int) map[string]int {
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	out := make(map[string]int, len(counts))
	for i, w := range order {
		out[w] = total / len(counts)
		if i < total%len(counts) {
			out[w]++
		}
	}
	return out
}

// load compares what the workers read, in KiB a second, as far as the leases tell.
type load struct {
	unit float64 // of a lease, on the average
	over float64 // what this worker has beyond an equal part; negative: it has less
	room float64 // up to an equal part, or to one lease that alone is more than that
}

func (c *Coordinator) load(t table, workers int) load {
	var total, mine, most float64
	n := 0
	add := func(leases []Lease) {
		for _, l := range leases {
			total, most, n = total+l.Throughput, max(most, l.Throughput), n+1
		}
	}
	add(t.mine)
	add(t.free)
	for _, leases := range t.others {
		add(t.readyOf(leases))
	}
	for _, l := range t.mine {
		if !c.releasing[l.Key] {
			mine += l.Throughput
		}
	}
	part := total / float64(workers)
	return load{total / float64(max(n, 1)), mine - part, max(part, most) - mine}
}

// choose is n of the leases, the busiest first that fit into so much throughput, then
// the quietest. Leases of about the same throughput stay in their order, which differs
// from worker to worker: those that choose at the same time would all want the same.
func (l load) choose(from []Lease, n int, throughput float64) []Lease {
	if n >= len(from) || l.unit == 0 {
		return from[:min(n, len(from))]
	}
	about := func(a Lease) float64 { return math.Floor(a.Throughput / l.unit) }
	busiest := slices.Clone(from)
	slices.SortStableFunc(busiest, func(a, b Lease) int { return cmp.Compare(about(b), about(a)) })
	chosen := make([]Lease, 0, n)
	rest := busiest[:0]
	for _, a := range busiest {
		if len(chosen) < n && a.Throughput <= throughput {
			throughput -= a.Throughput
			chosen = append(chosen, a)
		} else {
			rest = append(rest, a)
		}
	}
	slices.SortStableFunc(rest, func(a, b Lease) int { return cmp.Compare(about(a), about(b)) })
	return append(chosen, rest[:n-len(chosen)]...)
}

// pick is what to take of the free leases: what this worker lacks. A lease that has
// been free for the failover time is taken beyond that, by everybody in equal parts:
// whoever it was left for has died or may not take more.
func (c *Coordinator) pick(now time.Time, l load, free []Lease, need, mine, workers int) []Lease {
	n := min(need, len(free))
	var overdue []Lease
	for _, a := range free {
		if now.Sub(c.seen[a.Key].free) >= c.Failover {
			overdue = append(overdue, a)
		}
	}
	if part := c.room((len(overdue)+workers-1)/workers, mine); part > n {
		return overdue[:part]
	}
	return l.choose(free, n, l.room)
}

// makeRoom releases leases for workers that have announced that they lack some and
// can't find them free. Without such a worker an excess stays: whoever has less may
// not be allowed more.
func (c *Coordinator) makeRoom(t table, l load, waiting, counts, share map[string]int) []Action {
	lacked := -len(t.free)
	for w, want := range waiting {
		lacked += max(0, min(want, share[w]-counts[w]))
	}
	n := -len(c.releasing)
	for left := maps.Clone(counts); lacked > 0; lacked-- {
		most := ""
		for w := range left {
			excess, before := left[w]-share[w], left[most]-share[most]
			if excess > before || excess == before && w < most && excess > 0 {
				most = w
			}
		}
		if left[most] <= share[most] {
			break
		}
		left[most]--
		if most == c.Worker {
			n++
		}
	}
	if n <= 0 {
		return nil
	}
	staying := slices.DeleteFunc(slices.Clone(t.mine), func(l Lease) bool { return c.releasing[l.Key] })
	c.shuffle(staying)
	going := l.choose(staying, n, l.over)
	for _, a := range going {
		if c.releasing == nil {
			c.releasing = map[string]bool{}
		}
		c.releasing[a.Key] = true
	}
	return actions(Release, going)
}

// ask gets this worker the leases that it lacks and that are all held: by asking, and
// after the failover time by stealing.
func (c *Coordinator) ask(now time.Time, t table, need int) []Action {
	if c.lacking.IsZero() {
		c.lacking, c.asked = now, 0
	}
	if now.Sub(c.lacking) >= c.Failover {
		if stolen := c.steal(t, need); len(stolen) > 0 {
			c.lacking = now
			return actions(Steal, stolen)
		}
	}
	// In a fleet that starts, a worker may begin to listen when the call stands there
	// already, and can't know it from one of last year: the first is soon repeated.
	since, pause := now.Sub(c.called), c.Failover/2
	if c.asked == 1 {
		pause = 2 * c.Poll()
	}
	if c.number == 0 || since >= pause || since >= c.Poll() && !c.onSignal() {
		c.asked++
		return []Action{{Kind: Announce, Lease: Lease{Key: c.signalKey}, Text: c.call(now, need)}}
	}
	return nil
}

// steal takes from the most loaded worker, half of the difference at most, so that
// two workers never pass the same lease to and fro.
func (c *Coordinator) steal(t table, need int) []Lease {
	from := t.readyOf(t.others[t.mostLoaded(t.readyOf)])
	n := min(need, (len(from)-len(t.mine))/2)
	if n <= 0 {
		return nil
	}
	c.shuffle(from)
	return from[:n]
}

// mostLoaded is the other worker that holds most of the leases that count.
func (t table) mostLoaded(counted func([]Lease) []Lease) (most string) {
	n := -1
	for w, leases := range t.others {
		if have := len(counted(leases)); have > n || have == n && w < most {
			most, n = w, have
		}
	}
	return most
}
