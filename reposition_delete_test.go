package kinetl_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
)

// placing is a worker whose rows tell their records.
func (r *rig) placing(name string) *kinetl.Pipeline {
	p := r.worker(name)
	p.Config.Metadata = kinetl.MetadataColumns
	return p
}

// R14: with DeleteRows a step back leaves every record in the table once: what will be
// read again is deleted, dead letters included, and what has left the stream stays.
func TestRepositionDeletesRows(t *testing.T) {
	for name, c := range map[string]struct {
		to      func(midst time.Time) kinetl.Position
		deleted kinetl.Deleted // of shard 0
	}{
		"oldest":   {func(time.Time) kinetl.Position { return kinetl.Oldest }, kinetl.Deleted{Rows: 3, DeadLetters: 1}},
		"a time":   {func(at time.Time) kinetl.Position { return kinetl.Since(at) }, kinetl.Deleted{Rows: 2, DeadLetters: 1}},
		"a record": {func(time.Time) kinetl.Position { return kinetl.At("9", 0) }, kinetl.Deleted{Rows: 2, DeadLetters: 1}},
		"latest":   {func(time.Time) kinetl.Position { return kinetl.Since(time.Now()) }, kinetl.Deleted{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				r.seq = 7
				r.put(0, 8, 9) // two digits come next: 10 is after 9
				time.Sleep(time.Minute)
				midst := time.Now()
				r.put(0, 10)
				r.putText(0, `{"id":`)
				r.put(0, 12)
				r.put(1, 13)
				w := r.start(r.placing("a"))
				r.until("all are stored", func() bool { return len(r.ids("orders")) == 5 })
				r.do(func() { r.shards[0].records = r.shards[0].records[1:]; r.shards[0].blanks = 3 }) // 8 leaves the stream

				call := r.repositioning(map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): c.to(midst)})
				call.DeleteRows, call.DryRun = true, true
				before := r.memory.Read("orders")
				moved, err := kinetl.Reposition(t.Context(), call)
				if err != nil || len(moved) != 1 || moved[0].Deleted != c.deleted {
					t.Fatalf("a dry run: %+v, %v, want %+v deleted", moved, err, c.deleted)
				}
				if after := r.memory.Read("orders"); len(after.Rows) != len(before.Rows) || len(after.Gaps) > 0 || r.row(0).Sink.Position == string(moved[0].To) {
					t.Fatalf("a dry run changed %+v", after)
				}
				call.DryRun = false
				if moved, err = kinetl.Reposition(t.Context(), call); err != nil || moved[0].Deleted != c.deleted {
					t.Fatalf("%+v, %v, want %+v deleted", moved, err, c.deleted)
				}
				time.Sleep(time.Minute)
				w.drain(t)
				if err := r.once(r.placing("b")); err != nil {
					t.Fatal(err)
				}
				ids := r.ids("orders")
				if slices.Sort(ids); !slices.Equal(ids, []int{8, 9, 10, 12, 13}) {
					t.Errorf("stored %v, want each record once", ids)
				}
				if dead := r.memory.Read("orders").DeadLetters; len(dead) != 1 {
					t.Errorf("%d dead letters, want 1", len(dead))
				}
			})
		})
	}
}

// R14: rows that were left by an earlier step back are deleted by a second one to the
// same place.
func TestRepositionDeletesRowsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2)
		if err := r.once(r.placing("a")); err != nil {
			t.Fatal(err)
		}
		call := r.repositioning(map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): kinetl.At("1", 0)})
		if _, err := kinetl.Reposition(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		call.DeleteRows = true
		moved, err := kinetl.Reposition(t.Context(), call)
		if err != nil || moved[0].Deleted.Rows != 1 {
			t.Fatalf("%+v, %v", moved, err)
		}
		time.Sleep(time.Second)
		if err := r.once(r.placing("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2)
	})
}

// R14: where rows can't be deleted, nothing is moved either.
func TestRepositionThatCantDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		if err := r.once(r.worker("a")); err != nil { // without metadata
			t.Fatal(err)
		}
		call := r.repositioning(map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): kinetl.Oldest})
		call.DeleteRows = true
		var undeletable *kinetl.UndeletableError
		if _, err := kinetl.Reposition(t.Context(), call); !errors.As(err, &undeletable) {
			t.Errorf("rows without metadata: %v", err)
		}
		call.Destination = struct{ kinetl.Destination }{r.memory}
		if _, err := kinetl.Reposition(t.Context(), call); err == nil || !strings.Contains(err.Error(), "can't delete rows") {
			t.Errorf("a destination that can't: %v", err)
		}
		call.Destination = r.memory
		r.fault = func(call string, _ kinetl.ShardID) error { return map[string]error{"next": errInjected}[call] }
		if _, err := kinetl.Reposition(t.Context(), call); !errors.Is(err, errInjected) {
			t.Errorf("a stream that can't be read: %v", err)
		}
		table := r.memory.Read("orders")
		if at := table.Watermarks[shardOf("orders", 0)]; at != kinetl.At("1", 0) || len(table.Gaps) > 0 || r.row(0).Checkpoint != "1" {
			t.Errorf("moved to %s", at)
		}
	})
}

// R26: a shard that was first listed longer ago than the stream keeps records is read
// from the oldest one that there is when it is moved there: that is what was asked for.
func TestRepositionToTheOldestOfALongStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		r.write(kinetl.LeaseKey(shardOf("orders", 0)), func(l *lease.Lease) { l.Created = time.Now().Add(-30 * 24 * time.Hour) })
		if _, err := kinetl.Reposition(t.Context(), r.repositioning(map[kinetl.ShardID]kinetl.Position{shardOf("orders", 0): kinetl.Oldest})); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		resumes := r.resumes[shardOf("orders", 0)]
		if last := resumes[len(resumes)-1]; last.After != kinetl.Oldest || time.Since(last.Listed) > time.Hour {
			t.Errorf("read from %+v", last)
		}
	})
}
