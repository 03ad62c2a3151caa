package kinetl_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
)

// notes is a handler's own store: ids in the order in which they came.
type notes struct {
	mu  sync.Mutex
	ids []int
}

func (n *notes) add(records []kinetl.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range records {
		id, _ := strconv.Atoi(strings.Trim(string(r.Data), `{}"id:`))
		n.ids = append(n.ids, id)
	}
}

func (n *notes) have() []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ids)
}

func (r *rig) consumer(name string, once bool) *kinetl.Consumer {
	p := r.worker(name)
	p.Consumer.Config.Once = once
	return &p.Consumer
}

// keep stores what it is given and checkpoints it.
func keep(n *notes) func(context.Context, *kinetl.Shard, []kinetl.Record) error {
	return func(_ context.Context, s *kinetl.Shard, records []kinetl.Record) error {
		n.add(records)
		if len(records) > 0 {
			s.Checkpoint(records[len(records)-1].Position(), lease.Sink{})
		}
		return nil
	}
}

// A handler that fails, and a source that does, skip nothing: the same records come
// again, in order, and children after their parent, which ends when the handler says so.
func TestAHandlerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, span(1, 35)...)
		left, right := r.split(0)
		r.put(left, 36)
		r.put(right, 37)
		calls := 0
		r.fault = func(call string, _ kinetl.ShardID) error {
			r.do(func() { calls++ })
			return bad(call == "next" && calls%3 == 0).err
		}
		var n notes
		var mu sync.Mutex
		fails, ends := 0, []string{}
		err := r.consumer("a", true).Handle(t.Context(), func(ctx context.Context, s *kinetl.Shard, records []kinetl.Record) error {
			mu.Lock()
			fails++
			failing := fails%3 != 0
			if len(records) == 0 {
				if r.row(0).Ended() && s.Info.ID == shardOf("orders", 0) {
					t.Error("SHARD_END was written before the handler knew")
				}
				ends = append(ends, s.Info.ID.Shard)
			}
			mu.Unlock()
			if failing {
				return errInjected
			}
			return keep(&n)(ctx, s, records)
		})
		if err != nil {
			t.Fatal(err)
		}
		got := n.have()
		if !slices.Equal(got[:35], span(1, 35)) {
			t.Errorf("handed over %v", got)
		}
		slices.Sort(got)
		if !slices.Equal(got, span(1, 37)) {
			t.Errorf("handed over %v", got)
		}
		if len(ends) == 0 || slices.ContainsFunc(ends, func(s string) bool { return s != shardName(0) }) || !r.row(0).Ended() {
			t.Errorf("ends %v", ends)
		}
	})
}

// A handler checkpoints when it likes, from any goroutine: who goes on begins there.
// With Once the run ends when everything is.
func TestAHandlersOwnCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, span(1, 25)...)
		r.put(1, 26)
		ctx, stop := context.WithCancel(t.Context())
		var n notes
		done := make(chan error, 1)
		go func() {
			done <- r.consumer("a", false).Handle(ctx, func(_ context.Context, s *kinetl.Shard, records []kinetl.Record) error {
				n.add(records)
				if len(n.have()) == 26 {
					stop()
				}
				for _, rec := range records {
					if rec.Sequence == "13" {
						s.Checkpoint(rec.Position(), lease.Sink{})
					}
				}
				return nil
			})
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if l := r.row(0); l.Checkpoint != "13" || l.Owner != "" {
			t.Errorf("the lease says %+v", l)
		}
		var again notes
		began := time.Now()
		var timers sync.WaitGroup
		err := r.consumer("b", true).Handle(t.Context(), func(_ context.Context, s *kinetl.Shard, records []kinetl.Record) error {
			again.add(records)
			at := records[len(records)-1].Position()
			timers.Go(func() {
				time.Sleep(30 * time.Second)
				s.Checkpoint(at, lease.Sink{})
			})
			return nil
		})
		timers.Wait()
		if err != nil {
			t.Fatal(err)
		}
		got := again.have()
		slices.Sort(got)
		if !slices.Equal(got, append(span(14, 25), 26)) {
			t.Errorf("the second was given %v", got)
		}
		if took := time.Since(began); took < 30*time.Second {
			t.Errorf("the run ended after %s, before anything was checkpointed", took)
		}
	})
}

// KCL complaint 4: leases move while records come in, to one that joins and from one
// that stops. A handler that checkpoints what it is given is given nothing twice.
func TestHandlersHandOver(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 6)
			rng := newDice(seed)
			var n notes
			members := map[string]*running{}
			join := func(name string) {
				ctx, stop := context.WithCancel(t.Context())
				w := &running{stop, make(chan error, 1)}
				c := r.consumer(name, false)
				c.Leases = &flaky{Store: r.leases, hook: func(string, lease.Lease) fate { return fate{hang: 10 * time.Millisecond} }}
				go func() {
					w.done <- c.Handle(ctx, func(ctx context.Context, s *kinetl.Shard, records []kinetl.Record) error {
						time.Sleep(time.Duration(rng.n(400)) * time.Millisecond)
						return keep(&n)(ctx, s, records)
					})
				}()
				members[name] = w
			}
			put := 0
			live := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					r.put(rng.n(6), put)
					put++
				}
			}
			join("a")
			live(10 * time.Second)
			join("b")
			live(15 * time.Second)
			join("c")
			live(15 * time.Second)
			members["a"].drain(t)
			live(10 * time.Second)
			members["b"].drain(t)
			live(10 * time.Second)
			r.until("all is handed over", func() bool { return len(n.have()) >= put })
			members["c"].drain(t)
			got := n.have()
			slices.Sort(got)
			if !slices.Equal(got, span(0, put-1)) {
				t.Errorf("%d records were put, %d handed over, %d of them different", put, len(got), len(slices.Compact(got)))
			}
			if lost := r.count(kinetl.EventLeaseLost); lost > 0 {
				t.Errorf("%d leases were lost", lost)
			}
		})
	}
}

// KCL complaint 23: handlers that take six minutes for a page keep their leases, each
// beside the other, and go on behind that page.
func TestASlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		var n notes
		slow := func(ctx context.Context, s *kinetl.Shard, records []kinetl.Record) error {
			time.Sleep(6 * time.Minute)
			return keep(&n)(ctx, s, records)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- r.consumer("a", false).Handle(ctx, slow) }()
		go func() { done <- r.consumer("b", false).Handle(ctx, slow) }()
		r.until("each holds a shard", r.shared)
		r.put(0, span(1, 15)...)
		r.put(1, span(16, 20)...)
		time.Sleep(time.Minute)
		r.put(1, 21)
		time.Sleep(20 * time.Minute)
		stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		got := n.have()
		slices.Sort(got)
		if !slices.Equal(got, span(1, 21)) || r.count(kinetl.EventLeaseLost) > 0 {
			t.Errorf("handed over %v, %d leases lost", got, r.count(kinetl.EventLeaseLost))
		}
	})
}

// Handlers share shards of several streams and read what expired unread no further
// than a person allows.
func TestHandlersInAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.add("payments")
		var a, b notes
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- r.consumer("a", false).Handle(ctx, keep(&a)) }()
		go func() { done <- r.consumer("b", false).Handle(ctx, keep(&b)) }()
		r.until("they share", func() bool {
			counts := map[string]int{}
			for i := range 4 {
				counts[r.row(i).Owner]++
			}
			return counts["a"] == 2 && counts["b"] == 2
		})
		for i := range 4 {
			r.put(i, i)
		}
		r.until("all is handed over", func() bool { return len(a.have())+len(b.have()) == 4 })
		if len(a.have()) != 2 {
			t.Errorf("a has %v, b has %v", a.have(), b.have())
		}
		stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}

		r.write(kinetl.LeaseKey(shardOf("orders", 0)), func(l *lease.Lease) { l.CaughtUp = time.Time{} })
		r.expires(0)
		var c notes
		inc := r.wantHalted(r.consumer("c", true).Handle(t.Context(), keep(&c)), kinetl.IncidentExpired)[0]
		if _, err := kinetl.Resolve(t.Context(), r.leases, inc.ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
			t.Fatal(err)
		}
		r.put(0, 9)
		if err := r.consumer("d", true).Handle(t.Context(), keep(&c)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.have()); got != "[9]" {
			t.Errorf("handed over %s", got)
		}
	})
}
