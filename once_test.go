package kinetl_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
)

// renewing renews a lease as its owner would, until stop is called.
func (r *rig) renewing(key string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(3 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				if l, found, _ := r.leases.Get(r.t.Context(), key); found {
					_, _ = r.leases.Update(r.t.Context(), l, l)
				}
			}
		}
	}()
	return func() { close(quit); <-done }
}

// notes is what a person was told.
func (r *rig) notes() (out string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kinetl.EventNote {
			out += e.Reason + "\n"
		}
	}
	return out
}

// R25: in a fleet mixed with KCL, a run with Once ends when everything is loaded but what
// KCL's workers read, which nobody can tell has caught up, and says so. Nor does it wait
// for the shards that come after.
func TestOnceBesideKCL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1)
		r.put(1, 2)
		key := kinetl.LeaseKey(shardOf("orders", 0))
		r.create(lease.Lease{Key: key, Checkpoint: "1", Owner: "kcl-worker", Foreign: true})
		left, right := r.split(0)
		r.put(left, 3)
		stop := r.renewing(key)
		defer stop()
		began := time.Now()
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		r.wantOrders(2)
		if n := r.notes(); !strings.Contains(n, "1 shard(s) are read by workers of KCL and were not waited for: worker kcl-worker") {
			t.Errorf("notes %q", n)
		}
		_ = right
	})
}

// R25: a lease that a worker of KCL's has left behind is taken over, and waited for.
func TestOnceAfterKCLDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2)
		r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: lease.TrimHorizon, Owner: "kcl-worker", Foreign: true})
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2)
	})
}

// R25: what other workers of kinetl hold is waited for, since they tell; when that takes
// its time a person learns what it waits for.
func TestOnceSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		key := kinetl.LeaseKey(shardOf("orders", 0))
		r.create(lease.Lease{Key: key, Checkpoint: lease.TrimHorizon, Owner: "other", Created: time.Now()})
		stop := r.renewing(key)
		defer stop()
		p := r.worker("a")
		p.Consumer.Config.Once = true
		p.Consumer.Config.MaxLeases = 1
		w := r.start(p)
		time.Sleep(time.Minute)
		if n := r.notes(); strings.Count(n, "waiting for 1 shard(s) that other workers hold") != 1 || !strings.Contains(n, "worker other has "+key) {
			t.Errorf("notes %q", n)
		}
		r.write(key, func(l *lease.Lease) { l.CaughtUp = time.Now() })
		if err := r.end(w); err != nil {
			t.Error(err)
		}
	})
}
