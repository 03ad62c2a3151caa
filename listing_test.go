package kinetl_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
)

// late is a source whose listing is behind what the stream is.
type late struct {
	*script
	edit atomic.Pointer[func(kinetl.ShardInfo) (kinetl.ShardInfo, bool)] // nil: the listing is true
}

func (l *late) Shards(ctx context.Context, openAt time.Time) (kinetl.Listing, error) {
	out, err := l.script.Shards(ctx, openAt)
	if edit := l.edit.Load(); edit != nil {
		all := out.Shards
		out.Shards = nil
		for _, info := range all {
			if info, listed := (*edit)(info); listed {
				out.Shards = append(out.Shards, info)
			}
		}
	}
	return out, err
}

// KCL complaint 21: pages of one listing are of different moments. A split is seen with
// one child, with none, or with both while the parent still looks open; nothing is
// skipped or read too early for it.
func TestListingsThatLagBehind(t *testing.T) {
	for name, edit := range map[string]func(kinetl.ShardInfo) (kinetl.ShardInfo, bool){
		"one child is missing": func(i kinetl.ShardInfo) (kinetl.ShardInfo, bool) { return i, i.ID.Shard != shardName(2) },
		"both are missing":     func(i kinetl.ShardInfo) (kinetl.ShardInfo, bool) { return i, len(i.Parents) == 0 },
		"the parent looks open": func(i kinetl.ShardInfo) (kinetl.ShardInfo, bool) {
			if len(i.Parents) == 0 {
				i.Closed, i.LastSeq = false, ""
			}
			return i, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				r.put(0, 1, 2)
				source := &late{script: r.script}
				source.edit.Store(&edit)
				p := r.worker("a")
				p.Consumer.Source = source
				w := r.start(p)
				r.until("the parent is stored", r.has(2))
				left, right := r.split(0)
				r.put(left, 3)
				r.put(right, 4)
				time.Sleep(5 * time.Minute)
				source.edit.Store(nil)
				r.until("all is stored", r.has(4))
				w.drain(t)
				r.wantOrders(1, 2, 3, 4)
				r.wantParentsFirst()
			})
		})
	}
}

// K33, K36: listing, reading and the lease store fail all at once, for a minute; nothing
// waits for anything that waits for it, and reading goes on. A stop in the midst of it
// ends the run within five seconds.
func TestEverythingFailsAtOnce(t *testing.T) {
	for name, stop := range map[string]bool{"for a minute": false, "until it is stopped": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 4)
				var failing atomic.Bool
				r.fault = func(string, kinetl.ShardID) error { return bad(failing.Load()).err }
				p := r.worker("a")
				p.Consumer.Leases = &flaky{Store: r.leases, hook: func(string, lease.Lease) fate { return bad(failing.Load()) }}
				w := r.start(p)
				for i := range 4 {
					r.put(i, i)
				}
				r.until("all is stored", r.has(4))
				failing.Store(true)
				left, _ := r.split(0)
				r.put(left, 4)
				time.Sleep(5 * time.Second)
				if stop {
					asked := time.Now()
					w.drain(t)
					if took := time.Since(asked); took > 5*time.Second {
						t.Errorf("the stop took %s", took)
					}
					return
				}
				time.Sleep(time.Minute)
				failing.Store(false)
				r.until("it is read on", r.has(5))
				w.drain(t)
				r.wantOrders(span(0, 4)...)
			})
		})
	}
}

// K6, K39, KCL complaint 15: shards that are finished are not taken again, not by
// workers that come later and not after a start anew, and count for nobody's share.
func TestFinishedShardsStayFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		for n := range 20 { // a chain: every left child is split again
			r.put(n, n)
			if n < 19 {
				r.split(n)
			}
		}
		total := len(r.shards)
		if err := r.once(r.worker("first")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(span(0, 19)...)
		open := r.openShards()
		finished := func() (times int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, e := range r.events {
				if e.Kind == kinetl.EventLeaseTaken && !slices.ContainsFunc(open, func(n int) bool { return r.shards[n].info.ID == e.Shard }) {
					times++
				}
			}
			return times
		}
		if n := finished(); n != total-len(open) {
			t.Errorf("%d finished shards were taken %d times", total-len(open), n)
		}
		a, b := r.start(r.worker("a")), r.start(r.worker("b"))
		owned := func(name string) (n int) {
			for _, i := range open {
				if r.row(i).Owner == name {
					n++
				}
			}
			return n
		}
		r.until("they share what is open", func() bool {
			return owned("a")+owned("b") == len(open) && owned("a") >= len(open)/2 && owned("b") >= len(open)/2
		})
		time.Sleep(10 * time.Minute)
		a.drain(t)
		b.drain(t)
		if n := finished(); n != total-len(open) {
			t.Errorf("finished shards were taken %d times more", n-total+len(open))
		}
		r.wantOrders(span(0, 19)...)
	})
}

// KCL complaint 18: a lease that somebody deletes is made again, of a shard that is held
// and of one that is not. The table knows where to go on: nothing is lost or repeated.
// A finished shard's is not made again while its children have theirs.
func TestADeletedLease(t *testing.T) {
	for name, held := range map[string]bool{"while it is held": true, "while nobody runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				r.put(0, 1, 2)
				r.put(1, 3)
				left, _ := r.split(1)
				r.put(left, 4)
				w := r.start(r.worker("a"))
				r.until("all is stored", r.has(4))
				r.until("the parent is finished", func() bool { return r.row(1).Ended() })
				if !held {
					w.drain(t)
				}
				for n := range 2 {
					// Unconditionally, as the service's console does it.
					for r.leases.Delete(t.Context(), r.row(n)) != nil {
						time.Sleep(time.Millisecond)
					}
				}
				if !held {
					w = r.start(r.worker("b"))
				}
				r.put(0, 5)
				r.put(left, 6)
				r.until("what came later is stored", r.has(6))
				w.drain(t)
				r.wantOrders(span(1, 6)...)
				if l := r.row(1); l.Key != "" {
					t.Errorf("the finished shard has a lease again: %+v", l)
				}
			})
		})
	}
}

// KCL complaint 18, R17: nor is a shard forgotten whose lease is deleted before it was
// read to its end, although its children have leases by then: none of them has begun.
func TestADeletedLeaseOfAnUnfinishedParent(t *testing.T) {
	for name, held := range map[string]bool{"while it is held": true, "while nobody runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				r.put(0, span(1, 500)...)
				left, _ := r.split(0)
				r.put(left, 501)
				r.page = 5
				w := r.start(r.worker("a"))
				r.until("some is stored, and children have leases", func() bool { return r.has(50)() && r.row(left).Key != "" })
				if !held {
					w.drain(t)
				}
				for r.leases.Delete(t.Context(), r.row(0)) != nil {
					time.Sleep(time.Millisecond)
				}
				if !held {
					w = r.start(r.worker("b"))
				}
				r.until("the child's record is stored", func() bool { return slices.Contains(r.ids("orders"), 501) })
				w.drain(t)
				r.wantOrders(span(1, 501)...)
				r.wantParentsFirst()
			})
		})
	}
}
