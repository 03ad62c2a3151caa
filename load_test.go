package kinetl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/lease"
)

// K3: a partial batch of a stream that fell silent arrives once it is Batch.Age old.
func TestAPartialBatchArrivesByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		p := r.worker("a")
		p.Config.Batch = kinetl.Batch{Rows: 1000, Age: 5 * time.Second}
		w := r.start(p)
		r.until("the worker reads", func() bool { return r.count(kinetl.EventOpened) == 1 })
		put := time.Now()
		r.put(0, span(1, 25)...)
		r.until("rows arrive", r.has(1))
		if took := time.Since(put); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("the rows arrived after %s, want an age of 5 s and a page's pace", took)
		}
		r.wantOrders(span(1, 25)...)
		w.drain(t)
	})
}

// A part is sealed at the rows or the bytes that Batch allows, long before its age.
func TestABatchIsSealedByRowsAndBytes(t *testing.T) {
	for name, batch := range map[string]kinetl.Batch{
		"rows":  {Rows: 4, Age: time.Hour},
		"bytes": {Bytes: 1000, Age: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				r.put(0, span(1, 40)...)
				p := r.worker("a")
				p.Config.Batch = batch
				w := r.start(p)
				r.until("rows arrive", r.has(32))
				largest := int64(0)
				r.mu.Lock()
				for _, e := range r.events {
					largest = max(largest, e.Rows)
				}
				r.mu.Unlock()
				if largest > 10 {
					t.Errorf("a part of %d rows, with %+v", largest, batch)
				}
				w.drain(t)
				r.wantOrders(span(1, 40)...)
			})
		})
	}
}

// A stop commits what was read: rows that are not sealed, and those in a commit
// that is under way. The lease is left at the last position, and without an owner.
func TestAStopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, span(1, 5)...)
		p := r.worker("a")
		p.Config.Batch = kinetl.Batch{Rows: 5, Age: time.Hour}
		committing := make(chan bool, 9)
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step != "commit:begin" {
				return nil
			}
			committing <- true
			return wait(ctx, 10*time.Second)
		}})
		w := r.start(p)
		<-committing
		r.put(0, span(6, 8)...)
		r.until("the rest is read", r.fetched(8))
		w.drain(t)
		r.wantOrders(span(1, 8)...)
		l := r.row(0)
		if l.Owner != "" || l.Checkpoint != "8" || l.Sink.Position != string(kinetl.At("8", 0)) {
			t.Errorf("R21: the lease is left as %+v", l)
		}
	})
}

// fetched reports whether so many records were read.
func (r *rig) fetched(n int64) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		sum := int64(0)
		for _, e := range r.events {
			if e.Kind == kinetl.EventFetched {
				sum += e.Records
			}
		}
		return sum == n
	}
}

// A stop while the end of a shard is being committed waits for that commit too.
func TestAStopDrainsTheEndOfAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2, 3)
		r.split(0)
		p := r.worker("a")
		committing := make(chan bool, 9)
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step != "commit:begin" {
				return nil
			}
			committing <- true
			return wait(ctx, 3*time.Second)
		}})
		w := r.start(p)
		<-committing
		r.until("the end is read", r.fetched(3))
		time.Sleep(time.Second) // within the commit's three: the end of the shard is read meanwhile
		w.drain(t)
		r.wantOrders(1, 2, 3)
		if l := r.row(0); !l.Ended() || l.Owner != "" {
			t.Errorf("R8: the end is durable, the lease says %+v", l)
		}
	})
}

// A drain that can't finish ends in time, and the next run loses nothing.
func TestADrainEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, span(1, 30)...)
		p := r.worker("a")
		p.Config.Drain = 7 * time.Second
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step == "commit:begin" {
				return wait(ctx, time.Hour)
			}
			return nil
		}})
		w := r.start(p)
		r.until("all is read", r.fetched(30))
		time.Sleep(2 * time.Second) // the batch's age: a commit is under way
		asked := time.Now()
		w.drain(t)
		if took := time.Since(asked); took > 8*time.Second {
			t.Errorf("the stop took %s with a drain of 7 s", took)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Error(err)
		}
		r.wantOrders(span(1, 30)...)
	})
}

// A table that takes no commit for six minutes, longer than an iterator lives:
// memory bounds what is read, no lease moves although another worker waits for
// one, and afterwards every record is there once, in order (R27, K15, K21).
func TestABlockedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		var blocked atomic.Int64
		block := func(ctx context.Context, step string) error {
			if step != "commit:begin" {
				return nil
			}
			return wait(ctx, time.Until(time.Unix(0, blocked.Load())))
		}
		workers := []*running{}
		for _, name := range []string{"a", "b"} {
			p := r.worker(name)
			p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: block})
			p.Config.Memory = 3000
			workers = append(workers, r.start(p))
		}
		r.until("each reads a shard", r.shared)
		time.Sleep(30 * time.Second)
		taken, lost, opened, read := r.count(kinetl.EventLeaseTaken), r.count(kinetl.EventLeaseLost), r.count(kinetl.EventOpened), 0
		r.do(func() { read = r.fetches })
		end := time.Now().Add(6 * time.Minute)
		blocked.Store(end.UnixNano())
		for i := range 200 {
			r.put(i%2, i)
		}
		time.Sleep(time.Until(end) - time.Second)
		r.do(func() { read = r.fetches - read })
		if read > 40 {
			t.Errorf("R27: %d pages were read into 3000 bytes", read)
		}
		if n := len(r.ids("orders")); n != 0 {
			t.Errorf("%d rows in a table that took no commit", n)
		}
		r.until("all is stored", r.has(200))
		taken, lost, opened = r.count(kinetl.EventLeaseTaken)-taken, r.count(kinetl.EventLeaseLost)-lost, r.count(kinetl.EventOpened)-opened
		if taken+lost+opened != 0 {
			t.Errorf("R21: %d leases taken, %d lost, %d shards opened anew; want none", taken, lost, opened)
		}
		for _, w := range workers {
			w.drain(t)
		}
		r.wantOrders(span(0, 199)...)
		r.wantInOrder()
	})
}

// wantInOrder checks that ids grow within each shard (R30).
func (r *rig) wantInOrder() {
	r.t.Helper()
	last := map[kinetl.ShardID]kinetl.Position{}
	for _, row := range r.memory.Read("orders").Rows {
		if row.Position <= last[row.Shard] {
			r.t.Errorf("R30: %s is stored after %s", row.Position, last[row.Shard])
		}
		last[row.Shard] = row.Position
	}
}

// R8: SHARD_END is written after End is durable, and children start after that.
func TestTheEndOfAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2)
		left, right := r.split(0)
		r.put(left, 3)
		r.put(right, 4)
		p := r.worker("a")
		p.Consumer.Leases = &flaky{Store: r.leases, hook: func(call string, l lease.Lease) fate {
			if call == "update" && l.Ended() && r.memory.Read("orders").Watermarks[shardOf("orders", 0)] != kinetl.End {
				t.Error("SHARD_END was written before the table held End")
			}
			return fate{}
		}}
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		if ids := r.ids("orders"); !slices.Equal(ids[:2], []int{1, 2}) {
			t.Errorf("stored as %v: children before their parent", ids)
		}
		r.wantOrders(1, 2, 3, 4)
	})
}

// R8: a worker that dies when End is durable and SHARD_END is not leaves a shard
// that its successor ends without reading it again.
func TestADeathBetweenEndAndShardEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2)
		left, _ := r.split(0)
		r.put(left, 3)
		dead := false
		p := r.worker("a")
		p.Consumer.Leases = &flaky{Store: r.leases, hook: func(call string, l lease.Lease) fate {
			dead = dead || call == "update" && l.Ended()
			return bad(dead)
		}}
		w := r.start(p)
		r.until("the lease of the dead is lost", func() bool { return r.count(kinetl.EventLeaseLost) == 1 })
		w.drain(t)
		if l := r.row(0); l.Ended() {
			t.Fatalf("the lease says %+v", l)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 3)
		if n := len(r.resumes[shardOf("orders", 0)]); n != 1 {
			t.Errorf("the finished shard was read %d times", n)
		}
	})
}

// K2: a worker is killed in the midst of a closed shard. The next one goes on there, at
// what the table holds, and reads the rest before the children.
func TestAKillInsideAClosedShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, span(1, 45)...)
		left, _ := r.split(0)
		r.put(left, 46)
		var dead atomic.Bool
		p := r.worker("a")
		p.Config.Batch.Rows = 10
		p.Consumer.Leases = &flaky{Store: r.leases, hook: func(string, lease.Lease) fate { return bad(dead.Load()) }}
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(_ context.Context, step string) error {
			if step == "commit:begin" {
				dead.Store(dead.Load() || len(r.ids("orders")) >= 20)
			}
			return bad(dead.Load()).err
		}})
		w := r.start(p)
		r.until("it is dead", dead.Load)
		w.stop()
		<-w.done
		stored := len(r.ids("orders"))
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(span(1, 46)...)
		r.wantInOrder()
		resumes := r.resumes[shardOf("orders", 0)]
		if last, want := resumes[len(resumes)-1].After, kinetl.At(strconv.Itoa(stored), 0); stored < 20 || stored > 40 || last != want {
			t.Errorf("%d rows were stored, reading went on after %s", stored, last)
		}
	})
}

// K34: what a lease says is durable, and of its own shard, whenever it is written, in
// whatever order the parts of several shards land.
func TestCheckpointsFollowTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		rng := newDice(34)
		p := r.worker("a")
		p.Config.Batch = kinetl.Batch{Rows: 3, Age: time.Second}
		checked := 0
		p.Consumer.Leases = &flaky{Store: r.leases, hook: func(call string, l lease.Lease) fate {
			at := l.Sink.Position
			if call != "update" || at == "" {
				return fate{}
			}
			for id, mark := range r.memory.Read("orders").Watermarks {
				if kinetl.LeaseKey(id) != l.Key {
					continue
				}
				checked++
				if kinetl.Position(at) > mark || l.Checkpoint != mark.String() && kinetl.Position(at) == mark {
					t.Errorf("lease %s says %s (%s), the table %s", l.Key, l.Checkpoint, at, mark)
				}
			}
			return fate{}
		}}
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step != "commit:begin" && step != "commit:done" {
				return nil
			}
			if rng.n(5) == 0 {
				return errInjected
			}
			return wait(ctx, time.Duration(rng.n(4000))*time.Millisecond)
		}})
		w := r.start(p)
		for id := range 300 {
			r.put(rng.n(3), id)
			time.Sleep(100 * time.Millisecond)
		}
		w.drain(t)
		if checked < 20 {
			t.Errorf("only %d checkpoints were written", checked)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(span(0, 299)...)
	})
}

// R8: a table restored from an older copy has a finished shard's watermark below
// End. The child asks for it, SHARD_END is taken back, and the rest is read. What
// the lease says of having been caught up is not true of the older copy (R26).
func TestShardEndWithAWatermarkBelowEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		parent := shardOf("orders", 0)
		r.put(0, 1, 2, 3)
		p := r.worker("a")
		p.Config.Batch.Rows = 2
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		left, _ := r.split(0)
		r.put(left, 4)
		// The older copy: record 3 is not in it.
		old := desttest.NewMemory(desttest.MemoryOptions{})
		copyRows(t, old, parent, kinetl.At("2", 0), 2)
		l := r.row(0)
		next := l
		next.Checkpoint, next.Sink.Position = lease.ShardEnd, string(kinetl.End)
		if _, err := r.leases.Update(t.Context(), l, next); err != nil {
			t.Fatal(err)
		}
		r.memory = old
		time.Sleep(time.Minute)
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 3, 4)
		resumes := r.resumes[parent]
		if last := resumes[len(resumes)-1]; last.After != kinetl.At("2", 0) || !last.CaughtUp.IsZero() {
			t.Errorf("R26: read again from %+v, want after 2 and never caught up", last)
		}
	})
}

// copyRows stores rows {"id":1} to {"id":n} of a shard through a position.
func copyRows(t *testing.T, m *desttest.Memory, shard kinetl.ShardID, through kinetl.Position, n int) {
	t.Helper()
	builder := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone)
	var payloads []string
	for i := range n {
		payloads = append(payloads, fmt.Sprintf(`{"id":%d}`, i+1))
	}
	rows, schema, _ := load(builder, payloads)
	ctx := t.Context()
	schema, err := m.Prepare(ctx, "orders", schema, kinetl.Refuse)
	if err == nil {
		_, err = m.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}})
	}
	if err == nil {
		_, err = m.Commit(ctx, "orders", []kinetl.Part{{Shard: shard, After: kinetl.Oldest, Through: through, Rows: rows, Schema: schema}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// R26: the lease says when the shard was caught up for the position that it
// carries. A table restored from an older copy is behind that.
func TestCaughtUpBelongsToItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2, 3)
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		caught := r.row(0).CaughtUp
		if caught.IsZero() {
			t.Fatal("never caught up")
		}
		time.Sleep(time.Minute)
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.memory = desttest.NewMemory(desttest.MemoryOptions{})
		copyRows(t, r.memory, shardOf("orders", 0), kinetl.At("2", 0), 2)
		if err := r.once(r.worker("c")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 3)
		got := r.resumes[shardOf("orders", 0)]
		if !got[1].CaughtUp.Equal(caught) || !got[2].CaughtUp.IsZero() {
			t.Errorf("resumed with %v, then %v from the older copy; the lease said %v", got[1].CaughtUp, got[2].CaughtUp, caught)
		}
	})
}

// R15: a lease that stands for a watermark which is not there, or for another
// sink, halts its shard. The others go on, and the run says what waits.
func TestIncidentsOfTakeOver(t *testing.T) {
	for kind, spoil := range map[kinetl.IncidentKind]func(r *rig, l *lease.Lease){
		kinetl.IncidentNoWatermark: func(_ *rig, l *lease.Lease) { l.Sink = lease.Sink{ID: "memory", Table: "orders"} },
		kinetl.IncidentOtherSink:   func(_ *rig, l *lease.Lease) { l.Sink = lease.Sink{ID: "another", Table: "orders"} },
	} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				r.put(0, 1)
				r.put(1, 2)
				l := lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: "77", Start: time.Now()}
				spoil(r, &l)
				if err := r.leases.Create(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				var halted *kinetl.HaltedError
				if err := r.once(r.worker("a")); !errors.As(err, &halted) || len(halted.Incidents) != 1 {
					t.Fatalf("the run ended with %v", err)
				}
				inc := halted.Incidents[0]
				if inc.Kind != kind || inc.Shard != shardOf("orders", 0).String() || inc.Position != "77" {
					t.Errorf("the incident is %+v", inc)
				}
				r.wantOrders(2)
			})
		})
	}
}

// R15: a pipeline that was pointed at another file is told so, and goes on by itself
// once it is pointed at the right one: what halts it is looked at anew by each holder.
func TestTheRightSinkAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // later than the last catch-up
		r.put(0, 2)
		r.memory.SetSink("another")
		for _, worker := range []string{"b", "c"} { // the second meets the incident of the first
			var halted *kinetl.HaltedError
			if err := r.once(r.worker(worker)); !errors.As(err, &halted) || len(halted.Incidents) != 1 || halted.Incidents[0].Kind != kinetl.IncidentOtherSink {
				t.Fatalf("%s ended with %v", worker, err)
			}
		}
		r.memory.SetSink("memory")
		if err := r.once(r.worker("d")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2)
	})
}

// R2: a watermark that is no position, edited by hand say, is an incident: read as
// it stands it would be no start, and everything would be loaded a second time.
func TestAWatermarkThatCantBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1)
		r.put(1, 2)
		shard := shardOf("orders", 0)
		if _, err := r.memory.Claim(t.Context(), "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err != nil {
			t.Fatal(err)
		}
		if err := r.memory.Move(t.Context(), "orders", []kinetl.Move{{Shard: shard, From: kinetl.Oldest, To: "77"}}, "by hand"); err != nil {
			t.Fatal(err)
		}
		var halted *kinetl.HaltedError
		if err := r.once(r.worker("a")); !errors.As(err, &halted) || len(halted.Incidents) != 1 || halted.Incidents[0].Kind != kinetl.IncidentNoWatermark {
			t.Fatalf("the run ended with %v", err)
		}
		r.wantOrders(2)
	})
}

// R24, FailUndecodable: the record halts its shard and the shard's descendants;
// what came before it is stored, and other shards go on.
func TestUndecodableHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1, 2)
		r.putText(0, `{"id":`)
		r.put(0, 3)
		left, _ := r.split(0)
		r.put(left, 4)
		r.put(1, 5, 6)
		p := r.worker("a")
		p.Config.FailUndecodable = true
		var halted *kinetl.HaltedError
		if err := r.once(p); !errors.As(err, &halted) || len(halted.Incidents) != 1 || halted.Incidents[0].Kind != kinetl.IncidentUndecodable || halted.Incidents[0].Position != "3" {
			t.Fatalf("the run ended with %v", err)
		}
		r.wantOrders(1, 2, 5, 6)
		if n := len(r.memory.Read("orders").DeadLetters); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		// Resolved, here by reading it as a dead letter after all.
		l := r.row(0)
		next := l
		next.Incident = ""
		if _, err := r.leases.Update(t.Context(), l, next); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(span(1, 6)...)
	})
}

// A stream that is deleted can't be read again: what was read of it is stored first.
func TestAStreamThatIsGoneKeepsWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2, 3)
		p := r.worker("a")
		p.Config.Batch.Age = time.Hour
		r.fault = func(call string, shard kinetl.ShardID) error {
			if call == "next" && r.fetches > 0 {
				return &kinetl.GoneError{Shard: shard}
			}
			return nil
		}
		w := r.start(p)
		r.until("the rows arrive", r.has(3))
		taken := r.count(kinetl.EventLeaseTaken)
		time.Sleep(time.Minute)
		if n := r.count(kinetl.EventLeaseTaken) - taken; n > 20 {
			t.Errorf("the lease was taken %d times in a minute while the stream was still listed", n)
		}
		w.drain(t)
		r.wantOrders(1, 2, 3)
	})
}

// Until leaves what arrived then or later; the next run goes on exactly there. The
// shard was not read to its tip: its lease must not say so, or records that expire
// before the next run would be missed in silence (R26).
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1, 2)
		r.put(1, 3)
		time.Sleep(time.Hour)
		until := time.Now()
		r.put(0, 4, 5)
		time.Sleep(10 * time.Hour)
		p := r.worker("a")
		p.Config.Until = until
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 3)
		time.Sleep(time.Second)
		if l := r.row(0); l.CaughtUp.After(until) || l.Checkpoint != "2" {
			t.Errorf("R26: the lease says %s caught up at %s, read until %s", l.Checkpoint, l.CaughtUp, until)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(span(1, 5)...)
	})
}

// Until with two workers, each with a shard that was split after it: neither can
// read the other's children, nor waits for them.
func TestUntilWithTwoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1, 2)
		r.put(1, 3)
		time.Sleep(time.Hour)
		until := time.Now()
		for shard := range 2 {
			r.put(shard, 10)
			left, _ := r.split(shard)
			r.put(left, 11)
		}
		var workers []*running
		for _, name := range []string{"a", "b"} {
			p := r.worker(name)
			p.Consumer.Config.MaxLeases = 1
			p.Config.Until, p.Consumer.Config.Once = until, true
			workers = append(workers, r.start(p))
		}
		for _, w := range workers {
			r.wantEnd(w)
		}
		r.wantOrders(1, 2, 3)
	})
}

// R27: a reservation that waits makes the loops seal what they hold, long before
// its age; and a loop whose own reservation waits seals by age meanwhile.
func TestAWaitForMemorySeals(t *testing.T) {
	for name, c := range map[string]struct {
		age, within time.Duration
	}{"by need": {time.Hour, time.Minute}, "by age": {time.Second, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3)
				for i := range 300 {
					r.put(i%3, i)
				}
				p := r.worker("a")
				p.Config.Memory, p.Config.Batch.Age = 3000, c.age
				began := time.Now()
				w := r.start(p)
				r.until("most is stored", r.has(250))
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %s", took)
				}
				w.drain(t)
				if err := r.once(r.worker("b")); err != nil {
					t.Fatal(err)
				}
				r.wantOrders(span(0, 299)...)
				r.wantInOrder()
			})
		})
	}
}

// R27: a record larger than the whole budget is read, alone.
func TestAnOversizeRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1)
		r.putText(0, `{"id":2,"x":"`+strings.Repeat("x", 50_000)+`"}`)
		r.put(0, 3)
		r.put(1, 4)
		p := r.worker("a")
		p.Config.Memory = 1000
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 3, 4)
	})
}

// A table that takes nothing does not stop another (R27).
func TestAStuckTableStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		other := r.add("clicks")
		for i := range 50 {
			r.put(0, i)
			r.put(other, i)
		}
		p := r.worker("a")
		p.Config.Memory = 2000
		p.Destination = &stuck{r.memory, "clicks"}
		w := r.start(p)
		r.until("the other table has its rows", r.has(50))
		r.wantOrders(span(0, 49)...)
		if n := len(r.ids("clicks")); n != 0 {
			t.Errorf("%d rows in the table that takes nothing", n)
		}
		w.stop()
		<-w.done
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		if got := r.ids("clicks"); !slices.Equal(got, span(0, 49)) {
			t.Errorf("clicks holds %v", got)
		}
	})
}

// stuck is a destination with a table whose commits hang.
type stuck struct {
	kinetl.Destination
	table string
}

func (d *stuck) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	if strings.EqualFold(table, d.table) {
		<-ctx.Done()
		return kinetl.CommitReport{}, ctx.Err()
	}
	return d.Destination.Commit(ctx, table, parts)
}
