//go:build interop

package interop

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

const startKCL = 2 * time.Minute // KCL waits up to 30 s before it makes the first leases

// readPartly has KCL take so many records of each shard, and checkpoint the last of
// them, which for some shards lies within an aggregate.
func (w *world) readPartly(k *kcl, limit int) {
	w.t.Helper()
	shards := w.in()
	w.until("KCL has read a part of each shard", startKCL, func() bool {
		have := k.checkpoints()
		for shard := range shards {
			if k.taken()[shard] < limit || have[shard].Seq == "" {
				return false
			}
		}
		return true
	})
}

// within is a number of records at which at least two shards are within an aggregate.
func (w *world) within() (limit int) {
	w.t.Helper()
	shards := map[string][]record{}
	for _, r := range w.records() {
		shards[r.shard] = append(shards[r.shard], r)
	}
	for limit = 50; limit < 60; limit++ {
		n := 0
		for _, have := range shards {
			if _, sub, _ := have[limit-1].at.Sequence(); sub > 0 {
				n++
			}
		}
		if n >= 2 {
			return limit
		}
	}
	w.t.Fatal("no such number")
	return 0
}

// expectLeases checks that the table says what the worker was told it had written.
func (w *world) expectLeases(k *kcl) {
	w.t.Helper()
	want, within := k.checkpoints(), 0 // how many within an aggregate
	for _, l := range w.leases() {
		c := want[l.Key]
		if l.Checkpoint != c.Seq || l.Sub != c.Sub {
			w.t.Errorf("%s: the lease says %s %d, KCL wrote %s %d", l.Key, l.Checkpoint, l.Sub, c.Seq, c.Sub)
		}
		if l.Sub > 0 {
			within++
		}
	}
	if within < 2 {
		w.t.Errorf("%d checkpoints lie within an aggregate, want 2", within)
	}
}

// A table made by KCL 2 is taken over by kinetl, at the record.
func TestKinetlGoesOnAfterKCL2(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	w := newWorld(t, 4, dynamotest.Dynalite(t))
	w.produce(400)
	limit := w.within()
	k := w.startKCL(kcl2, "java", limit)
	w.readPartly(k, limit)
	k.end(syscall.SIGTERM)
	w.expectLeases(k)

	children := w.split("shardId-000000000001")
	w.produce(300)
	w.loadOnce()
	res := w.count(w.rows(), k)
	res.clean(t, 0)
	w.expectEnded("shardId-000000000001", children)
	res.Scenario, res.Versions, res.Took = "1. KCL 2, then kinetl", kclVersion(t, kcl2), time.Since(begin)
	report(t, res)
}

// expectEnded checks that a parent is finished and its children were begun.
func (w *world) expectEnded(parent string, children [2]string) {
	w.t.Helper()
	have := map[string]string{}
	for _, l := range w.leases() {
		have[l.Key] = l.Checkpoint
	}
	if have[parent] != lease.ShardEnd {
		w.t.Errorf("%s: checkpoint %q", parent, have[parent])
	}
	for _, child := range children {
		if have[child] == "" || lease.IsSentinel(have[child]) {
			w.t.Errorf("%s: checkpoint %q", child, have[child])
		}
	}
}

// The other way round: kinetl works on a table made by KCL 2, over a split, and KCL
// goes on at the record, over another; then kinetl once more, with the same table.
func TestKCL2GoesOnAfterKinetl(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	w := newWorld(t, 4, dynamotest.Dynalite(t))
	first := w.startKCL(kcl2, "first", 0) // makes the table
	w.until("KCL has made leases and holds them", startKCL, func() bool { return w.owners("first")["first"] == 4 })
	first.end(syscall.SIGTERM)

	w.produce(200)
	w.split("shardId-000000000000")
	w.produce(200)
	w.loadOnce()
	if n := len(w.rows()); n != len(w.records()) {
		t.Fatalf("kinetl stored %d of %d records", n, len(w.records()))
	}

	w.split("shardId-000000000001")
	w.produce(200)
	second := w.startKCL(kcl2, "second", 0)
	w.until("KCL is done", startKCL, w.checkpointed)
	second.end(syscall.SIGTERM)
	res := w.count(w.rows(), first, second)
	res.clean(t, 0)
	res.Scenario, res.Versions, res.Took = "2. kinetl, then KCL 2", kclVersion(t, kcl2), time.Since(begin)
	report(t, res)

	begin = time.Now()
	w.split("shardId-000000000002")
	w.produce(200)
	w.loadOnce()
	res = w.count(w.rows(), first, second)
	res.clean(t, 0)
	res.Scenario, res.Versions, res.Took = "2b. and kinetl again", kclVersion(t, kcl2), time.Since(begin)
	report(t, res)
}

// A KCL 3 fleet that works is refused by name; once it has stopped, or died, it is
// taken over at the record.
func TestKinetlGoesOnAfterKCL3(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		profile string
		how     string
		signal  syscall.Signal
	}{
		{kcl3, "stopped", syscall.SIGTERM},
		{kcl3, "killed", syscall.SIGKILL},
		{kcl30, "stopped", syscall.SIGTERM},
		{kcl30, "killed", syscall.SIGKILL},
	} {
		t.Run(tt.profile+" "+tt.how, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			w := newWorld(t, 4, dynamotest.Moto(t))
			w.produce(400)
			limit := w.within()
			k := w.startKCL(tt.profile, "java", limit)
			w.readPartly(k, limit)

			refused := w.startKinetl("--once")
			asked := time.Now()
			code := refused.wait()
			took := time.Since(asked)
			said, err := os.ReadFile(refused.log)
			must(t, err)
			if code == 0 || !strings.Contains(string(said), "KCL 3 is at work") || !strings.Contains(string(said), "java-") {
				t.Errorf("beside a KCL 3 that works kinetl ended with code %d, and does not name the worker:\n%s", code, said)
			}
			if n := len(w.rows()); n > 0 {
				t.Errorf("it stored %d rows", n)
			}

			k.end(tt.signal)
			w.expectLeases(k)
			lock := w.lock()
			children := w.split("shardId-000000000001")
			w.produce(300)
			asked = time.Now()
			w.loadOnce()
			res := w.count(w.rows(), k)
			res.clean(t, 0)
			w.expectEnded("shardId-000000000001", children)
			res.Scenario, res.Versions, res.Took = "3. KCL 3, "+tt.how+", then kinetl", kclVersion(t, tt.profile), time.Since(begin)
			res.Note = fmt.Sprintf("live: refused with exit code %d after %v; then, with a lock that was %s, taken over and read in %v",
				code, took.Round(time.Second), lock, time.Since(asked).Round(time.Second))
			report(t, res)
			if tt.signal == syscall.SIGTERM {
				w.backToKCL3(tt.profile, k)
			}
		})
	}
}

// backToKCL3 goes on where kinetl took over from a KCL 3: KCL is started on the same
// table, then kinetl once more, which stops when KCL comes up beside it.
func (w *world) backToKCL3(profile string, first *kcl) {
	t, begin := w.t, time.Now()
	w.split("shardId-000000000002")
	w.produce(200)
	second := w.startKCL(profile, "second", 0)
	w.until("KCL is done", startKCL, w.checkpointed)
	second.end(syscall.SIGTERM)
	res := w.count(w.rows(), first, second)
	res.clean(t, 0)
	res.Scenario, res.Versions, res.Took = "3b. and KCL 3 again", kclVersion(t, profile), time.Since(begin)
	report(t, res)

	begin = time.Now()
	w.produce(200)
	g := w.startKinetl()
	w.until("kinetl holds all leases", startKCL, func() bool { return w.owners()["kinetl"] == 6 })
	third := w.startKCL(profile, "third", 0)
	joined := time.Now()
	ended := make(chan int, 1)
	go func() { ended <- g.wait() }()
	var code int
	for gone := false; !gone; {
		w.produce(3)
		select {
		case code = <-ended:
			gone = true
		case <-time.After(200 * time.Millisecond):
			// Two looks must see the leader's lock, once KCL has it.
			if time.Since(joined) > 2*startKCL {
				t.Fatal("kinetl still works beside a KCL 3")
			}
		}
	}
	took := time.Since(joined)
	said, err := os.ReadFile(g.log)
	must(t, err)
	if code != 3 || !strings.Contains(string(said), "KCL 3 is at work") || !strings.Contains(string(said), "third-") {
		t.Errorf("when a KCL 3 came kinetl ended with code %d, and does not name the worker:\n%s", code, said)
	}
	w.until("KCL is done", startKCL, w.checkpointed)
	third.end(syscall.SIGTERM)
	res = w.count(w.rows(), first, second, third)
	res.clean(t, 0)
	res.Scenario, res.Versions, res.Took = "3c. KCL 3 comes up beside kinetl", kclVersion(t, profile), time.Since(begin)
	res.Note = fmt.Sprintf("kinetl stopped with exit code %d %v after KCL was started", code, took.Round(time.Second))
	report(t, res)
}

// lock is what became of the lock of KCL 3's leader.
func (w *world) lock() string {
	w.t.Helper()
	store, err := dynamolease.OpenReader(w.t.Context(), dynamolease.Options{AWS: dynamotest.Config(w.dynamo), Table: table})
	must(w.t, err)
	g, err := store.Generation(w.t.Context())
	must(w.t, err)
	switch {
	case !g.KCL3():
		w.t.Fatalf("the table is one of %s", g)
	case len(g.Locks) == 0:
		return "gone"
	case g.Locks[0].Released:
		return "released"
	}
	return "held for " + g.Locks[0].Lease.String()
}

// position is where a lease stands.
func position(l lease.Lease) kinetl.Position {
	if lease.IsSentinel(l.Checkpoint) {
		return ""
	}
	return kinetl.At(l.Checkpoint, l.Sub)
}
