package kinetl_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/lease"
)

func (r *rig) repositioning(to map[kinetl.ShardID]kinetl.Position) kinetl.Repositioning {
	return kinetl.Repositioning{Source: r.script, Leases: r.leases, Destination: r.memory, To: to, Reason: "asked for"}
}

// times is how often each id is stored.
func (r *rig) times() map[int]int {
	out := map[int]int{}
	for _, id := range r.ids("orders") {
		out[id]++
	}
	return out
}

// R14: shards are moved to the oldest record, a time, or a record, back or forward,
// while a worker reads them: it goes on from there, and every move is recorded.
func TestRepositionWhileRunning(t *testing.T) {
	for name, c := range map[string]struct {
		to   func(started time.Time) kinetl.Position
		want map[int]int // how often records 1 to 4 are stored at the end
	}{
		"oldest":   {func(time.Time) kinetl.Position { return kinetl.Oldest }, map[int]int{1: 2, 2: 2, 3: 2, 4: 1}},
		"a time":   {func(at time.Time) kinetl.Position { return kinetl.Since(at.Add(time.Minute)) }, map[int]int{1: 1, 2: 1, 3: 2, 4: 1}},
		"a record": {func(time.Time) kinetl.Position { return kinetl.At("1", 0) }, map[int]int{1: 1, 2: 2, 3: 2, 4: 1}},
		"later":    {func(time.Time) kinetl.Position { return kinetl.At("4", 0) }, map[int]int{1: 1, 2: 1, 3: 1, 4: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				started := time.Now()
				r.put(0, 1, 2)
				time.Sleep(time.Minute)
				r.put(0, 3)
				w := r.start(r.worker("a"))
				r.until("three are stored", r.has(3))
				to := c.to(started)
				moved, err := kinetl.Reposition(t.Context(), r.repositioning(map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): to}))
				if err != nil || len(moved) != 1 || moved[0].From != kinetl.At("3", 0) || moved[0].To != to {
					t.Fatalf("%+v, %v", moved, err)
				}
				if l := r.row(0); l.Owner == "" && (l.Sink.Position != string(to) || !l.CaughtUp.IsZero()) {
					t.Errorf("the lease says %+v", l)
				}
				r.put(0, 4)
				time.Sleep(time.Minute)
				w.drain(t)
				if err := r.once(r.worker("b")); err != nil {
					t.Fatal(err)
				}
				got := r.times()
				for id, n := range c.want {
					if got[id] != n {
						t.Errorf("record %d is stored %d times, want %d", id, got[id], n)
					}
				}
				gaps := r.memory.Read("orders").Gaps
				if len(gaps) != 1 || gaps[0].Reason != "asked for" || gaps[0].To != to {
					t.Errorf("gaps %+v", gaps)
				}
			})
		})
	}
}

// R14: of several shards all are moved or none: a worker that commits in between makes
// the call fail, and repeated it does what it was to do.
func TestRepositionIsAtomic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1)
		r.put(1, 2)
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		to := map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): kinetl.Oldest, shardOf("orders", 1): kinetl.Oldest}
		call := r.repositioning(to)
		raced := false
		call.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step == "move:begin" && !raced {
				raced = true
				return r.memory.Move(ctx, "orders", []kinetl.Move{{Shard: shardOf("orders", 1), From: kinetl.At("2", 0), To: kinetl.At("3", 0)}}, "a commit")
			}
			return nil
		}})
		var moved *kinetl.MovedError
		if _, err := kinetl.Reposition(t.Context(), call); !errors.As(err, &moved) {
			t.Fatalf("a commit in between: %v", err)
		}
		if at := r.memory.Read("orders").Watermarks[shardOf("orders", 0)]; at != kinetl.At("1", 0) {
			t.Errorf("one of two shards was moved, to %s", at)
		}
		// The leases can't be written: the watermarks are moved, and decide.
		call.Leases = &flaky{Store: r.leases, hook: func(c string, _ lease.Lease) fate { return bad(c == "update") }}
		if _, err := kinetl.Reposition(t.Context(), call); !errors.Is(err, errInjected) {
			t.Fatalf("without a lease store: %v", err)
		}
		call.Leases = r.leases
		if _, err := kinetl.Reposition(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		if got := r.times(); got[1] != 2 || got[2] != 2 {
			t.Errorf("stored %v", got)
		}
	})
}

// R14: a finished shard is not read again after its descendants: these are reset too,
// or the call is refused and nothing was moved.
func TestRepositionOfAFinishedShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		left, right := r.split(0)
		r.put(left, 2)
		grandchild, _ := r.split(left)
		r.put(grandchild, 3)
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		call := r.repositioning(map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): kinetl.Oldest})
		var finished *kinetl.FinishedError
		if _, err := kinetl.Reposition(t.Context(), call); !errors.As(err, &finished) || !slices.Equal(finished.Descendants, []kinetl.ShardID{shardOf("orders", left), shardOf("orders", grandchild)}) {
			t.Fatalf("reset a finished shard: %v", err)
		}
		if gaps := r.memory.Read("orders").Gaps; len(gaps) > 0 || !r.row(0).Ended() {
			t.Errorf("refused, and moved: %+v", gaps)
		}
		call.Descendants = true
		moved, err := kinetl.Reposition(t.Context(), call)
		if err != nil || len(moved) != 3 {
			t.Fatalf("%+v, %v", moved, err)
		}
		time.Sleep(time.Second)
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		if ids := r.ids("orders"); !slices.Equal(ids, []int{1, 2, 3, 1, 2, 3}) {
			t.Errorf("stored as %v", ids)
		}
		_ = right
	})
}

// R14: a shard that no worker has read yet begins where it is
// told to.
func TestRepositionOfAShardThatWasNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: lease.TrimHorizon, Created: time.Now()})
		r.put(0, 2)
		moved, err := kinetl.Reposition(t.Context(), r.repositioning(map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): kinetl.At("1", 0)}))
		if err != nil || len(moved) != 1 {
			t.Fatalf("%+v, %v", moved, err)
		}
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(2)
	})
}

// R14: what can't be read from is refused, and so is a halt forgotten: a shard that is
// repositioned goes on.
func TestRepositionRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.seq = 10
		r.putText(0, `{"id":1}`, `{"id":`, `{"id":3}`)
		r.do(func() { r.shards[0].info.FirstSeq = "11" })
		shard := shardOf("orders", 0)
		for what, to := range map[string]map[kinetl.ShardID]kinetl.Position{"has no lease": {shard: kinetl.Oldest}, "does not list": {shardOf("orders", 7): kinetl.Oldest}} {
			if _, err := kinetl.Reposition(t.Context(), r.repositioning(to)); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
		p := r.worker("a")
		p.Config.FailUndecodable = true
		r.wantHalted(r.once(p), kinetl.IncidentUndecodable)
		for what, to := range map[string]kinetl.Position{"none of the shard's": kinetl.At("3", 0), "its end": kinetl.End, "none of: oldest": "soon"} {
			if _, err := kinetl.Reposition(t.Context(), r.repositioning(map[kinetl.ShardID]kinetl.Position{shard: to})); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := kinetl.Reposition(t.Context(), r.repositioning(map[kinetl.ShardID]kinetl.Position{shard: kinetl.At("12", 0)})); err != nil {
			t.Fatal(err)
		}
		p = r.worker("b")
		p.Config.FailUndecodable = true
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 3)
	})
}

// R24: a resolution may say where to go on. The watermark stays, and the gap is
// recorded with the first part: from the watermark to the record that it begins with.
func TestAGapAcceptedUpToATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2)
		r.wantEnd(r.startOnce("z"))
		r.write(kinetl.LeaseKey(shardOf("orders", 0)), func(l *lease.Lease) { l.CaughtUp = time.Time{} })
		r.put(0, 3)
		time.Sleep(time.Minute)
		at := time.Now()
		r.put(0, 4, 5)
		r.expires(0)
		inc := r.wantHalted(r.once(r.worker("a")), kinetl.IncidentExpired)[0]
		if _, err := kinetl.Resolve(t.Context(), r.leases, inc.ID, kinetl.Resolution{From: kinetl.At("4", 0)}); err == nil {
			t.Error("resolved from a record")
		}
		if _, err := kinetl.Resolve(t.Context(), r.leases, inc.ID, kinetl.Resolution{From: kinetl.Since(at)}); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 4, 5)
		gaps := r.memory.Read("orders").Gaps
		if len(gaps) != 1 || gaps[0].From != kinetl.At("2", 0) || gaps[0].To != kinetl.At("4", 0) {
			t.Errorf("gaps %+v, want one from 2 to 4", gaps)
		}
		if l := r.row(0); l.Accepted != "" {
			t.Errorf("the lease still accepts %q", l.Accepted)
		}
	})
}
