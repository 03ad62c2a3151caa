package lease

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// kclTaker is the lease taker of KCL 1 and 2, written down from the description of its
// steps and apart from the Coordinator's: it looks every two failover times, and takes
// one lease at a time from others.
type kclTaker struct {
	seen map[string]sighting
}

func (f *fleet) joinKCL() *member {
	m := f.join(0)
	m.c.Worker = "kcl-" + m.c.Worker
	m.kcl = &kclTaker{seen: map[string]sighting{}}
	m.nextPoll = f.now.Add(1000 * time.Hour)
	return m
}

// takeAsKCL is one round.
func (f *fleet) takeAsKCL(m *member) {
	m.nextStep = f.now.Add(2 * failover)
	leases, err := f.store.List(context.Background())
	f.must(err)
	counts := map[string]int{m.c.Worker: 0}
	var available, old []Lease
	for _, l := range leases {
		s, ok := m.kcl.seen[l.Key]
		switch {
		case !ok && l.Owner == "":
			s = sighting{owner: l.Owner, counter: l.Counter} // never renewed: as old as can be
		case !ok || s.counter != l.Counter:
			s = sighting{owner: l.Owner, counter: l.Counter, at: f.now}
		}
		m.kcl.seen[l.Key] = s
		if age := f.now.Sub(s.at); l.Owner == "" || age > failover {
			available = append(available, l)
			if age > 3*failover {
				old = append(old, l)
			}
			continue
		}
		counts[l.Owner]++
	}
	target := 1
	if len(counts) < len(leases) {
		target = (len(leases) + len(counts) - 1) / len(counts)
	}
	f.rng.Shuffle(len(available), func(i, j int) { available[i], available[j] = available[j], available[i] })
	need := max(0, target-counts[m.c.Worker])
	take := available[:min(need, len(available))]
	switch {
	case len(old) > 0:
		take = old
	case len(available) == 0 && need > 0:
		most := ""
		for w, n := range counts {
			if w != m.c.Worker && (most == "" || n > counts[most]) {
				most = w
			}
		}
		if n := counts[most]; n > target || n == target && need > 1 {
			take = slices.DeleteFunc(leases, func(l Lease) bool { return l.Owner != most })[:1]
		}
	}
	for _, l := range take {
		if have := f.store.rows[l.Key]; have.Counter != l.Counter {
			continue
		}
		next := l
		next.Owner, next.Counter, next.Foreign = m.c.Worker, l.Counter+1, true
		f.store.rows[l.Key] = next
		m.held[l.Key], m.renewed[l.Key] = next, f.now
		f.moves = append(f.moves, fmt.Sprintf("%s kcl %s by %s from %q", f.now.Format("15:04:05.0"), l.Key, m.c.Worker, l.Owner))
	}
}

// R22: a fleet of KCL's workers and kinetl's comes to rest too, with nobody above the
// share, in the time that KCL needs: one lease a round for each worker that lacks some.
func TestMixedFleetsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.IntRange(1, 16).Draw(t, "leases")
		f := newFleet(t, rapid.Uint64().Draw(t, "seed"), leases)
		f.drain = 2 * time.Second
		for range rapid.IntRange(1, 8).Draw(t, "events") {
			switch n := rapid.IntRange(0, 6).Draw(t, "event"); {
			case n < 3:
				f.join(0)
			case n < 5 || len(f.workers) < 2:
				f.joinKCL()
			default:
				i := f.rng.IntN(len(f.workers))
				f.workers = slices.Delete(f.workers, i, i+1)
			}
			f.run(time.Duration(rapid.IntRange(0, 40).Draw(t, "pause")) * time.Second)
		}
		f.run(time.Duration(2*leases+8) * 2 * failover)
		counts, free := f.owned()
		for w, n := range counts {
			if share := (leases + len(counts) - 1) / len(counts); n > share {
				t.Fatalf("%s holds %d, its share is %d: %v; last moves:\n%s", w, n, share, counts, f.last())
			}
		}
		if free > 0 {
			t.Fatalf("%d leases are nobody's: %v; last moves:\n%s", free, counts, f.last())
		}
		f.still(8 * failover)
	})
}
