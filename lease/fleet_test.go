package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const failover = 10 * time.Second

// fleet is workers that do what their coordinators say, on one store and in virtual
// time, as the engine does it: they renew three times within the failover time, look
// at the signal every Poll, step when it changed or Wait has passed, and step again
// at once when they have written something.
type fleet struct {
	t       failing
	rng     *rand.Rand
	store   Memory
	now     time.Time
	workers []*member
	born    int
	drain   time.Duration // releasing a lease takes up to that
	moves   []string      // of leases, with the instant
	kinds   map[ActionKind]int
}

type failing interface {
	Helper()
	Fatalf(format string, args ...any)
}

type member struct {
	c                    Coordinator
	held                 map[string]Lease
	renewed              map[string]time.Time
	releases             map[string]time.Time // when the release of a lease gets through
	nextStep, nextPoll   time.Time
	stopping, dead, mute bool // mute: of a version that knows no signals
	kcl                  *kclTaker
}

const tick = 100 * time.Millisecond

func newFleet(t failing, seed uint64, leases int) *fleet {
	f := &fleet{t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: second(1_000_000), kinds: map[ActionKind]int{}}
	busy := f.rng.IntN(2) // in half of the fleets throughput is known, and differs
	for i := range leases {
		f.must(f.store.Create(context.Background(), Lease{
			Key: fmt.Sprintf("s:%03d", i), Checkpoint: "1", Throughput: float64(busy * f.rng.IntN(3) * f.rng.IntN(1000)),
		}))
	}
	return f
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("%v", err)
	}
}

func (f *fleet) join(most int) *member {
	f.born++
	m := &member{
		c:    Coordinator{Worker: fmt.Sprintf("w%02d", f.born), Failover: failover, MaxLeases: most},
		held: map[string]Lease{}, renewed: map[string]time.Time{}, releases: map[string]time.Time{},
		nextStep: f.now, nextPoll: f.now.Add(time.Duration(f.rng.IntN(1000)) * time.Millisecond),
	}
	f.workers = append(f.workers, m)
	return m
}

func (f *fleet) run(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); f.now = f.now.Add(tick) {
		for _, i := range f.rng.Perm(len(f.workers)) {
			if m := f.workers[i]; m.stopping || m.isDue(f.now) {
				f.turn(m)
			}
		}
		f.workers = slices.DeleteFunc(f.workers, func(m *member) bool { return m.dead })
	}
}

// isDue spares the turns in which nothing happens.
func (m *member) isDue(now time.Time) bool {
	if !now.Before(m.nextStep) || !now.Before(m.nextPoll) {
		return true
	}
	for key, at := range m.renewed {
		if until, leaving := m.releases[key]; now.Sub(at) >= failover/3 || leaving && !now.Before(until) {
			return true
		}
	}
	return false
}

// turn lets a worker do what is due.
func (f *fleet) turn(m *member) {
	ctx := context.Background()
	for _, key := range slices.Sorted(maps.Keys(m.held)) {
		at, leaving := m.releases[key]
		switch {
		case leaving && !f.now.Before(at):
			next := m.held[key]
			next.Owner = ""
			_, err := f.store.Update(ctx, m.held[key], next)
			f.lost(m, key, err)
			m.forget(key)
			m.nextStep = f.now
		case f.now.Sub(m.renewed[key]) >= failover/3:
			got, err := f.store.Update(ctx, m.held[key], m.held[key])
			if !f.lost(m, key, err) {
				m.held[key], m.renewed[key] = got, f.now
			}
		}
	}
	if m.stopping {
		if len(m.held) == 0 {
			if m.c.SignalKey() != "" {
				f.must(f.store.Signal(ctx, m.c.SignalKey(), m.c.Goodbye(f.now)))
			}
			m.dead = true
		}
		return
	}
	if m.kcl != nil {
		if !f.now.Before(m.nextStep) {
			f.takeAsKCL(m)
		}
		return
	}
	if !f.now.Before(m.nextPoll) && m.c.SignalKey() != "" {
		m.nextPoll = f.now.Add(m.c.Poll())
		l, _, err := f.store.Get(ctx, m.c.SignalKey())
		f.must(err)
		if m.c.News(l.Signal) && !m.mute {
			m.nextStep = f.now
		}
	}
	if !f.now.Before(m.nextStep) {
		f.step(m)
	}
}

// lost forgets a lease that another worker has.
func (f *fleet) lost(m *member, key string, err error) bool {
	if err == nil {
		return false
	}
	if !errors.Is(err, ErrLost) {
		f.t.Fatalf("%v", err)
	}
	m.forget(key)
	m.nextStep = f.now
	return true
}

func (m *member) forget(key string) {
	delete(m.held, key)
	delete(m.renewed, key)
	delete(m.releases, key)
}

func (f *fleet) step(m *member) {
	ctx := context.Background()
	leases, err := f.store.List(ctx)
	f.must(err)
	if m.mute {
		for i := range leases {
			leases[i].Signal = ""
		}
	}
	todo := m.c.Step(f.now, leases, Listing{}, slices.Sorted(maps.Keys(m.held)), Start{Checkpoint: TrimHorizon})
	m.nextStep = f.now.Add(m.c.Wait())
	for _, a := range todo {
		f.kinds[a.Kind]++
		switch a.Kind {
		case Take, Steal:
			m.nextStep = f.now.Add(tick)
			got, err := f.store.Update(ctx, a.Lease, a.Lease.TakenBy(m.c.Worker))
			if errors.Is(err, ErrLost) {
				continue
			}
			f.must(err)
			m.held[got.Key], m.renewed[got.Key] = got, f.now
			f.moves = append(f.moves, fmt.Sprintf("%s %s %s by %s from %q", f.now.Format("15:04:05.0"), a.Kind, got.Key, m.c.Worker, a.Lease.Owner))
		case Release:
			f.release(m, a.Lease.Key)
		case Announce:
			f.must(f.store.Signal(ctx, a.Lease.Key, a.Text))
		}
	}
}

func (f *fleet) release(m *member, key string) {
	if _, ok := m.releases[key]; !ok {
		m.releases[key] = f.now.Add(time.Duration(f.rng.Int64N(int64(f.drain) + 1)))
	}
}

func (f *fleet) stop(m *member) {
	m.stopping = true
	for key := range m.held {
		f.release(m, key)
	}
}

// owned is how many leases each living worker holds, and how many nobody does.
func (f *fleet) owned() (counts map[string]int, free int) {
	counts = map[string]int{}
	for _, m := range f.workers {
		counts[m.c.Worker] = 0
	}
	leases, err := f.store.List(context.Background())
	f.must(err)
	for _, l := range leases {
		if _, lives := counts[l.Owner]; lives {
			counts[l.Owner]++
		} else {
			free++
		}
	}
	return counts, free
}

func (f *fleet) last() string {
	return strings.Join(f.moves[max(0, len(f.moves)-15):], "\n")
}

// balanced fails unless every lease is held and no worker has two more than another.
func (f *fleet) balanced() {
	f.t.Helper()
	counts, free := f.owned()
	least, most := 1<<30, 0
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	if free > 0 || most-least > 1 {
		f.t.Fatalf("%d leases are nobody's, workers hold %v; last moves:\n%s", free, counts, f.last())
	}
}

// still fails if a lease moves within d.
func (f *fleet) still(d time.Duration) {
	f.t.Helper()
	before := len(f.moves)
	f.run(d)
	if len(f.moves) > before {
		f.t.Fatalf("leases moved in a fleet at rest:\n%s", f.last())
	}
}

// Whatever joins, leaves and dies, six failover times after the last of it every
// lease is held, no worker has two more than another, and nothing moves any more.
func TestFleetsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 40).Draw(t, "leases"))
		f.drain = time.Duration(rapid.IntRange(0, 15000).Draw(t, "drain")) * time.Millisecond
		old := rapid.Bool().Draw(t, "old versions")
		f.join(0)
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			f.run(time.Duration(rapid.IntRange(0, 20000).Draw(t, "pause")) * time.Millisecond)
			switch n := rapid.IntRange(0, 5).Draw(t, "event"); {
			case n < 3 || len(f.workers) < 2:
				for range rapid.IntRange(1, 4).Draw(t, "joiners") {
					f.join(0).mute = old && f.rng.IntN(3) == 0
				}
			case n < 5:
				f.stop(f.workers[f.rng.IntN(len(f.workers))])
			default:
				i := f.rng.IntN(len(f.workers))
				f.workers = slices.Delete(f.workers, i, i+1)
			}
			if !slices.ContainsFunc(f.workers, func(m *member) bool { return !m.stopping }) {
				f.join(0)
			}
		}
		f.run(6 * failover)
		f.balanced()
		f.still(4 * failover)
	})
}

// R21: while every worker lives and gives up leases within the failover time, none is
// stolen, and a fleet that grows or shrinks is balanced within two failover times.
func TestLeasesMoveByConsent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 60).Draw(t, "leases"))
		f.drain = 2 * time.Second
		workers := rapid.IntRange(1, 6).Draw(t, "workers")
		for range workers {
			f.join(0)
		}
		f.run(3 * failover)
		f.balanced()
		joiners := rapid.IntRange(1, 12).Draw(t, "joiners")
		for range joiners {
			f.join(0)
			f.run(time.Duration(f.rng.IntN(2)) * tick)
		}
		before := len(f.moves)
		f.run(2 * failover)
		f.balanced()
		t.Logf("%d moves for %d joiners", len(f.moves)-before, joiners)
		for range rapid.IntRange(0, len(f.workers)-1).Draw(t, "leavers") {
			f.stop(f.workers[f.rng.IntN(len(f.workers))])
		}
		f.run(2 * failover)
		f.balanced()
		f.still(2 * failover)
		if f.kinds[Steal] > 0 {
			t.Fatalf("%d leases were stolen; last moves:\n%s", f.kinds[Steal], f.last())
		}
	})
}

// With limits nobody exceeds its own, and what the limited may not have the others
// take, if there is room.
func TestFleetsWithLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.IntRange(1, 40).Draw(t, "leases")
		f := newFleet(t, rapid.Uint64().Draw(t, "seed"), leases)
		f.drain = 2 * time.Second
		room, limits := 0, map[string]int{}
		for range rapid.IntRange(1, 6).Draw(t, "workers") {
			most := rapid.IntRange(1, 20).Draw(t, "most")
			m := f.join(most)
			room, limits[m.c.Worker] = room+most, most
			f.run(time.Duration(rapid.IntRange(0, 8000).Draw(t, "pause")) * time.Millisecond)
		}
		f.run(8 * failover)
		counts, free := f.owned()
		for w, n := range counts {
			if n > limits[w] {
				t.Fatalf("%s holds %d of at most %d", w, n, limits[w])
			}
		}
		if free != max(0, leases-room) {
			t.Fatalf("%d of %d leases are nobody's, room is %d: %v", free, leases, room, counts)
		}
		f.still(4 * failover)
	})
}

// A few shards are most of a stream. Where leases move, those do that even out what the
// workers read: in fleets that start, grow and shrink the busiest worker reads on the
// average little more than its part, or than the hottest shard alone.
func TestHotShardsAreShared(t *testing.T) {
	const fleets = 200
	excess := map[string]float64{}
	for seed := range uint64(fleets) {
		f := newFleet(t, seed, 0)
		f.drain = 2 * time.Second
		workers, each := 2+f.rng.IntN(5), 2+f.rng.IntN(8)
		hot := 1 + f.rng.IntN(2*workers)
		for _, i := range f.rng.Perm(each * workers) {
			l := Lease{Key: fmt.Sprintf("s:%03d", i), Checkpoint: "1", Throughput: 10}
			if i < hot {
				l.Throughput = 1000
			}
			f.must(f.store.Create(context.Background(), l))
		}
		look := func(when string) {
			all, err := f.store.List(context.Background())
			f.must(err)
			total, most, of := 0.0, 0.0, map[string]float64{}
			for _, l := range all {
				total, of[l.Owner] = total+l.Throughput, of[l.Owner]+l.Throughput
			}
			for _, has := range of {
				most = max(most, has)
			}
			excess[when] += (most/max(total/float64(len(f.workers)), 1000) - 1) / fleets
		}
		for range workers {
			f.join(0)
		}
		f.run(3 * failover)
		look("start")
		f.join(0)
		f.run(2 * failover)
		look("join")
		f.stop(f.workers[f.rng.IntN(len(f.workers))])
		f.run(2 * failover)
		look("stop")
	}
	for when, e := range excess {
		if e > 0.4 { // leases that move at random are at 0.65 to 0.87
			t.Errorf("%s: the busiest worker reads %.0f %% more than its part", when, 100*e)
		}
	}
}
