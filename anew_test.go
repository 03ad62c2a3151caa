package kinetl_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
)

// createAnew deletes the stream and creates it again under its name, empty.
func (r *rig) createAnew() {
	r.do(func() {
		for _, s := range r.shards {
			s.info.ID.Created++
			s.records = nil
		}
	})
}

// R1, R26: a stream was deleted and created anew while no worker ran. The new one is
// read, and that what was unread of the old one is gone is an incident, whether its last
// worker ended in order or died. Accepting it deletes the old leases, and it is closed.
func TestAStreamThatWasCreatedAnewWhileNobodyRan(t *testing.T) {
	for name, owner := range map[string]string{"its worker stopped": "", "its worker died": "dead"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				r.put(0, 1)
				r.put(1, 2)
				if err := r.once(r.worker("a")); err != nil {
					t.Fatal(err)
				}
				old := []string{kinetl.LeaseKey(shardOf("orders", 0)), kinetl.LeaseKey(shardOf("orders", 1))}
				for _, key := range old {
					r.write(key, func(l *lease.Lease) { l.Owner = owner })
				}
				r.createAnew()
				r.put(0, 3)
				incs := r.wantHalted(r.once(r.worker("b")), kinetl.IncidentGone)
				if d := incs[0].Detail; len(incs) != 1 || !strings.Contains(d, "orders was deleted and created anew") || !strings.Contains(d, ":orders:1700000000") || !strings.Contains(d, "created at 1700000001") {
					t.Errorf("incidents %+v", incs)
				}
				r.wantOrders(1, 2, 3)
				r.wantHalted(r.once(r.worker("c")), kinetl.IncidentGone) // until somebody decides

				var refused *kinetl.UnresolvableError
				if _, err := kinetl.Resolve(t.Context(), r.leases, incs[0].ID, kinetl.Resolution{}); !errors.As(err, &refused) {
					t.Errorf("resolved without saying that the stream is gone: %v", err)
				}
				if _, err := kinetl.Resolve(t.Context(), r.leases, incs[0].ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				r.put(1, 4)
				if err := r.once(r.worker("d")); err != nil {
					t.Fatal(err)
				}
				r.wantOrders(1, 2, 3, 4)
				leases, _ := r.leases.List(t.Context())
				for _, l := range leases {
					if l.Key == old[0] || l.Key == old[1] {
						t.Errorf("lease %s is still there", l.Key)
					}
				}
			})
		})
	}
}

// R26: a stream that was finished before it was created anew has lost nothing.
func TestAFinishedStreamThatWasCreatedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: lease.ShardEnd, Created: time.Now()})
		r.createAnew()
		r.put(0, 1)
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1)
	})
}

// R26: where the owner of such a lease lives, it reads a stream of that name in another
// region, say: its lease is its own. A run with Once does not wait for it.
func TestAStreamThatAnotherWorkerStillReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		key := kinetl.LeaseKey(shardOf("orders", 0))
		r.create(lease.Lease{Key: key, Checkpoint: "1", Owner: "alive", Created: time.Now()})
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					if l, found, _ := r.leases.Get(t.Context(), key); found {
						_, _ = r.leases.Update(t.Context(), l, l)
					}
				}
			}
		}()
		r.createAnew()
		r.put(0, 1)
		began := time.Now()
		err := r.once(r.worker("a"))
		close(stop)
		<-done
		if err != nil || time.Since(began) > time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if l, found, _ := r.leases.Get(t.Context(), key); !found || l.Owner != "alive" || l.Incident != "" {
			t.Errorf("the lease is %+v", l)
		}
		r.wantOrders(1)
	})
}
