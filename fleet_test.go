package kinetl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/lease"
)

// troop is a fleet of pipelines on a rig, each of which can be killed.
type troop struct {
	*rig
	rng     *rand.Rand
	members map[string]*soldier
	records int
}

type soldier struct {
	*running
	dead atomic.Bool
}

// rally starts so many workers on so many shards, while records come in all the time.
func rally(t *testing.T, seed uint64, workers, shards int) *troop {
	f := &troop{rig: newRig(t, shards), rng: rand.New(rand.NewPCG(seed, 21)), members: map[string]*soldier{}}
	for i := range workers {
		f.join(fmt.Sprint("w", i))
		f.live(time.Duration(f.rng.IntN(3000)) * time.Millisecond)
	}
	f.within("the fleet has its shares", time.Minute, func() bool { return f.balanced(shards) })
	f.live(time.Duration(f.rng.IntN(10_000)) * time.Millisecond)
	return f
}

func (f *troop) join(name string) {
	m := &soldier{}
	p := f.worker(name)
	p.Consumer.Leases = &flaky{Store: f.leases, hook: func(string, lease.Lease) fate {
		return fate{hang: 10 * time.Millisecond, err: bad(m.dead.Load()).err}
	}}
	p.Destination = f.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
		if m.dead.Load() {
			return errInjected
		}
		if step == "commit:begin" {
			return wait(ctx, 200*time.Millisecond)
		}
		return nil
	}})
	m.running = f.start(p)
	f.members[name] = m
}

// live puts records for so long.
func (f *troop) live(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		open := f.openShards()
		f.put(open[f.rng.IntN(len(open))], f.records)
		f.records++
		time.Sleep(min(50*time.Millisecond, time.Until(end)))
	}
}

// within waits until something holds, and says how long that took at most.
func (f *troop) within(what string, limit time.Duration, holds func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) >= limit {
			f.t.Fatalf("%s: not within %s: %v", what, limit, f.owners())
		}
		f.live(10 * time.Millisecond)
	}
	return time.Since(began)
}

// owners is how many leases each living worker holds; "" is those of nobody and the dead.
func (f *troop) owners() map[string]int {
	out := map[string]int{}
	for name := range f.members {
		out[name] = 0
	}
	for i := range f.shards {
		name := f.row(i).Owner
		if m := f.members[name]; m == nil {
			name = ""
		}
		out[name]++
	}
	return out
}

func (f *troop) balanced(shards int) bool {
	counts := f.owners()
	for name, n := range counts {
		if name == "" && n > 0 || name != "" && n < shards/len(f.members) {
			return false
		}
	}
	return true
}

func (f *troop) dismiss() {
	for _, m := range f.members {
		m.drain(f.t)
	}
	if err := f.once(f.worker("last")); err != nil {
		f.t.Error(err)
	}
	f.wantOrders(span(0, f.records-1)...)
}

// R21: how long a shard is without a worker at the default failover time of 10 s: 2 s
// when its worker stops, 10 s until one that joins has its share, 15 s after a kill.
func TestHandOver(t *testing.T) {
	var longest [3]time.Duration
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			workers, shards := 2+rng.IntN(4), 5+rng.IntN(12)
			f := rally(t, seed, workers, shards)
			taken := func() bool { return f.owners()[""] == 0 }

			leaver := f.members["w0"]
			delete(f.members, "w0")
			leaver.stop()
			longest[0] = max(longest[0], f.within("after a stop every shard has a worker", 2*time.Second, taken))
			if err := <-leaver.done; err != nil {
				t.Error(err)
			}
			f.within("the rest has its shares", time.Minute, func() bool { return f.balanced(shards) })
			f.live(time.Duration(rng.IntN(10_000)) * time.Millisecond)

			f.join("joiner")
			longest[1] = max(longest[1], f.within("the one that joined has its share", 10*time.Second, func() bool { return f.balanced(shards) }))
			f.live(time.Duration(rng.IntN(10_000)) * time.Millisecond)

			dead := f.members["w1"]
			delete(f.members, "w1")
			dead.dead.Store(true)
			longest[2] = max(longest[2], f.within("after a kill every shard has a worker", 15*time.Second, taken))
			dead.stop()
			<-dead.done
			f.dismiss()
		})
	}
	t.Logf("at most: %s after a stop, %s to join, %s after a kill", longest[0], longest[1], longest[2])
}

// 2,500 shards have a worker within 30 s, with a store that answers in 10 ms, and are
// never more renewals in a second than a partition of DynamoDB takes.
func TestManyShardsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 2500
		r := newRig(t, shards)
		writes := map[int64]int{}
		store := &flaky{Store: r.leases, hook: func(call string, _ lease.Lease) fate {
			if call == "update" {
				writes[time.Now().Unix()]++
			}
			return fate{hang: 10 * time.Millisecond}
		}}
		began := time.Now()
		events, stop := hold(t, r.script, store, "a")
		r.until("all are held", func() bool { return len(events(kinetl.EventLeaseTaken)) == shards })
		took := time.Since(began)
		t.Logf("%d shards are held after %s", shards, took)
		if took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
		settled := time.Now().Unix() + 4
		time.Sleep(time.Minute)
		stopped := time.Now().Unix()
		if err := stop(); err != nil {
			t.Error(err)
		}
		for second, n := range writes {
			if second > settled && second < stopped && n > 1000 {
				t.Errorf("%d renewals in a second", n)
			}
		}
	})
}

// K5: 64 shards have their first records in the table, from one worker, seconds after its
// start: not one lease a tick.
func TestFirstRecordsOfManyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 64)
		for i := range 64 {
			r.put(i, i)
		}
		p := r.worker("a")
		p.Consumer.Leases = &flaky{Store: r.leases, hook: func(string, lease.Lease) fate { return fate{hang: 10 * time.Millisecond} }}
		began := time.Now()
		w := r.start(p)
		r.until("every shard has its record in the table", r.has(64))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		w.drain(t)
		r.wantOrders(span(0, 63)...)
	})
}

// R20: a worker that stops says so after its last release, also when its store failed
// it before; lost signals cost time and no more.
func TestSignalsThatAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4)
		deaf := &silent{r.leases}
		a, b := r.worker("a"), r.worker("b")
		a.Consumer.Leases, b.Consumer.Leases = deaf, deaf
		workers := []*running{r.start(a), r.start(b)}
		r.until("each has two", func() bool {
			n := 0
			for i := range 4 {
				if r.row(i).Owner == "b" {
					n++
				}
			}
			return n == 2
		})
		r.put(0, 1, 2)
		r.put(3, 3)
		workers[0].drain(t)
		r.until("b has all", func() bool {
			return !slices.ContainsFunc(span(0, 3), func(i int) bool { return r.row(i).Owner != "b" })
		})
		r.until("all is stored", r.has(3))
		workers[1].drain(t)
		r.wantOrders(1, 2, 3)
	})
}

// silent loses signals.
type silent struct{ lease.Store }

func (silent) Signal(context.Context, string, string) error { return errInjected }

// R22: while it is not known whether KCL 3 is at work nothing is taken; when it is
// found to be, leases are released and the run ends with an error that says so.
func TestWatchKeepsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1)
		var verdict atomic.Pointer[lease.Verdict]
		looks := atomic.Int64{}
		p := r.worker("a")
		p.Consumer.Config.Watch = func(_ context.Context, _ time.Time, leases []lease.Lease) (lease.Verdict, error) {
			if looks.Add(1); looks.Load() == 1 && len(leases) > 0 {
				t.Error("leases were made before the first look")
			}
			return *verdict.Load(), nil
		}
		verdict.Store(&lease.Verdict{Judgement: lease.Unknown, Wait: 5 * time.Second, Note: "finding out"})
		w := r.start(p)
		time.Sleep(time.Minute)
		if all, _ := r.leases.List(t.Context()); len(all) > 0 {
			t.Errorf("%d leases were made while it was not known", len(all))
		}
		if n := looks.Load(); n < 10 || n > 40 {
			t.Errorf("looked %d times in a minute, want every 5 s", n)
		}
		if n := r.count(kinetl.EventNote); n != 1 {
			t.Errorf("told %d times, want once", n)
		}
		verdict.Store(&lease.Verdict{Judgement: lease.Clear})
		r.until("the record is stored", r.has(1))
		before := looks.Load()
		time.Sleep(10 * time.Minute)
		if n := looks.Load() - before; n < 9 || n > 11 {
			t.Errorf("looked %d times in ten minutes", n)
		}
		// Where there is reason to, it looks sooner.
		verdict.Store(&lease.Verdict{Judgement: lease.Clear, Wait: 20 * time.Second})
		before = looks.Load()
		time.Sleep(10 * time.Minute)
		if n := looks.Load() - before; n < 20 || n > 30 {
			t.Errorf("looked %d times in ten minutes, want every 20 s", n)
		}
		r.put(1, 2)
		time.Sleep(300 * time.Millisecond)
		verdict.Store(&lease.Verdict{Judgement: lease.Live, Note: "worker k holds the leader lock"})
		err := r.end(w)
		var kcl3 *lease.KCL3Error
		if !errors.As(err, &kcl3) || !strings.Contains(err.Error(), "worker k") {
			t.Fatalf("the run ended with %v", err)
		}
		for i := range 2 {
			if l := r.row(i); l.Owner != "" {
				t.Errorf("lease %s is left to %q", l.Key, l.Owner)
			}
		}
		r.wantOrders(1, 2)
	})
}

// R22: a lease that is being handed over is looked at at once, not in a minute, and a
// look that fails after the first changes nothing.
func TestWatchLooksAtHandOvers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		looks, failing := atomic.Int64{}, atomic.Bool{}
		p := r.worker("a")
		p.Consumer.Config.Watch = func(context.Context, time.Time, []lease.Lease) (lease.Verdict, error) {
			looks.Add(1)
			return lease.Verdict{Judgement: lease.Clear}, bad(failing.Load()).err
		}
		w := r.start(p)
		r.until("both are held", func() bool { return r.row(0).Owner == "a" && r.row(1).Owner == "a" })
		handed := lease.Lease{Key: kinetl.LeaseKey(shardOf("other", 1)), Owner: "k2", CheckpointOwner: "k1", Checkpoint: lease.TrimHorizon}
		if err := r.leases.Create(t.Context(), handed); err != nil {
			t.Fatal(err)
		}
		failing.Store(true)
		before := looks.Load()
		time.Sleep(30 * time.Second)
		if n := looks.Load() - before; n < 5 {
			t.Errorf("looked %d times in 30 s", n)
		}
		if r.row(0).Owner != "a" {
			t.Error("a look that failed cost the lease")
		}
		w.drain(t)

		// At the start it is an error: nothing is known.
		if err := r.once(p); !errors.Is(err, errInjected) {
			t.Errorf("the run ended with %v", err)
		}
	})
}

// A worker steals only from a row as it is now: its owner has renewed since the table
// was read. Here it renews all the time, and gives nothing up.
func TestStealingFromABusyOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		ctx := t.Context()
		for i := range 2 {
			if err := r.leases.Create(ctx, lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", i)), Owner: "stubborn", Checkpoint: lease.TrimHorizon, Created: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		renewing, stopRenewing := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for wait(renewing, 20*time.Millisecond) == nil {
				all, _ := r.leases.List(ctx)
				for _, l := range all {
					if l.Owner == "stubborn" {
						_, _ = r.leases.Update(ctx, l, l)
					}
				}
			}
		}()
		p := r.worker("a")
		p.Consumer.Leases = &flaky{Store: r.leases, hook: func(call string, _ lease.Lease) fate {
			if call == "list" {
				return fate{hang: 10 * time.Millisecond, after: true}
			}
			return fate{}
		}}
		slow := &slowList{p.Consumer.Leases}
		p.Consumer.Leases = slow
		w := r.start(p)
		r.until("one is stolen", func() bool { return r.row(0).Owner == "a" || r.row(1).Owner == "a" })
		w.drain(t)
		stopRenewing()
		<-done
	})
}

// slowList takes long to bring a table over.
type slowList struct{ lease.Store }

func (s *slowList) List(ctx context.Context) ([]lease.Lease, error) {
	out, err := s.Store.List(ctx)
	if err := wait(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	return out, err
}
