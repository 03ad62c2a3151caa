package kinetl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
)

// R13: a row that the table refuses becomes a dead letter with the table's reason;
// the other rows of its part are stored, and each record ends up in one place.
func TestRowsThatTheTableRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, span(1, 10)...)
		r.put(1, span(11, 15)...)
		p := r.worker("a")
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Reject: func(_ string, row desttest.Row) string {
			if id := row.Cells["id"]; id == "3" || id == "7" {
				return "check constraint: no " + id
			}
			return ""
		}})
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15)
		var reasons []string
		for _, d := range r.memory.Read("orders").DeadLetters {
			reasons = append(reasons, d.Reason+" "+string(d.Payload))
		}
		if want := []string{`check constraint: no 3 {"id":3}`, `check constraint: no 7 {"id":7}`}; !slices.Equal(reasons, want) {
			t.Errorf("dead letters %q, want %q", reasons, want)
		}
	})
}

// A destination that this process can't use any more ends the run, with its own
// words; the next run goes on where it stopped.
func TestABrokenDestinationEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, span(1, 5)...)
		p := r.worker("a")
		full := errors.New("the disk is full")
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(_ context.Context, step string) error {
			if step == "commit:rows" {
				return &kinetl.BrokenError{Cause: full}
			}
			return nil
		}})
		if err := r.once(p); !errors.Is(err, full) {
			t.Errorf("the run ended with %v", err)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 3, 4, 5)
	})
}

// R9: somebody changes the table between the reading of its schema and a commit.
// Nothing of the commit is stored; the records are read again for the table as it is.
func TestATableChangedUnderABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.putText(0, `{"id":1,"x":"1"}`, `{"id":2,"x":"2"}`)
		p := r.worker("a")
		widened := false
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step == "commit:begin" && !widened {
				widened = true
				_, err := r.memory.Prepare(ctx, "orders", kinetl.Schema{{Name: "x", Class: kinetl.JSON}}, kinetl.Allow)
				return err
			}
			return nil
		}})
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2)
		for _, row := range r.memory.Read("orders").Rows {
			if want := `"` + row.Cells["id"] + `"`; row.Cells["x"] != want {
				t.Errorf("row %s holds x = %s, want the JSON text %s", row.Cells["id"], row.Cells["x"], want)
			}
		}
		if r.count(kinetl.EventReopened) != 1 {
			t.Errorf("%d re-reads, want one", r.count(kinetl.EventReopened))
		}
	})
}

// R9: {} beside a scalar is NULL only where the column is a scalar's. When another
// worker has made it JSON meanwhile, the batch no longer has the {}.
func TestEmptyObjectsOfABatchWhoseColumnBecameJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.putText(0, `{"id":1,"x":{}}`, `{"id":2,"x":"text"}`)
		p := r.worker("a")
		prepared := 0
		p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step != "prepare:begin" {
				return nil
			}
			if prepared++; prepared == 2 {
				_, err := r.memory.Prepare(ctx, "orders", kinetl.Schema{{Name: "x", Class: kinetl.JSON}}, kinetl.Refuse)
				return err
			}
			return nil
		}})
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2)
		if got := r.memory.Read("orders").Rows[0].Cells["x"]; got != "{}" {
			t.Errorf("x = %q, want {} as one batch for the JSON column would hold it", got)
		}
	})
}

// R25: an instant at which the shard was read to its tip counts only if what was
// read before is durable. Here a commit comes to nothing while a page waits that
// finds the tip.
func TestCaughtUpNeedsDurability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2)
		p := r.worker("a")
		failed := false
		p.Destination = r.memory.Handle(desttest.MemoryOptions{
			Fault: func(ctx context.Context, step string) error {
				if step == "commit:begin" {
					return wait(ctx, 500*time.Millisecond)
				}
				return nil
			},
			Reject: func(_ string, row desttest.Row) string {
				if !failed {
					failed = true
					return "not today"
				}
				return ""
			},
		})
		observe, pages := p.Consumer.Config.Observe, 0
		p.Consumer.Config.Observe = func(e kinetl.Event) {
			observe(e)
			if e.Kind == kinetl.EventFetched {
				if pages++; pages == 2 {
					time.Sleep(time.Second) // the commit fails meanwhile
				}
			}
		}
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		if rows, dead := r.ids("orders"), r.memory.Read("orders").DeadLetters; len(rows)+len(dead) != 2 {
			t.Errorf("the run ended with %d rows and %d dead letters of 2 records", len(rows), len(dead))
		}
	})
}

// Every batch is released, on each path: stored, conformed to a wider table,
// repeated, refused, dropped with its session, or dropped at the stop.
func TestBatchesAreReleased(t *testing.T) {
	before := memory.DefaultAllocator
	defer func() { memory.DefaultAllocator = before }()
	checked := memory.NewCheckedAllocator(before)
	memory.DefaultAllocator = checked
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.putText(0, `{"id":1,"x":1}`, `{"id":2,"x":2}`, `{"id":3,"x":0.5}`, `{"id":4,"x":9007199254740993}`, `{"id":5,"x":"s"}`)
		p := r.worker("a")
		p.Config.Batch.Rows = 1
		var commits atomic.Int32
		p.Destination = r.memory.Handle(desttest.MemoryOptions{
			Fault: func(_ context.Context, step string) error {
				if n := commits.Add(1); step == "commit:watermarks" && n%2 == 1 || step == "prepare:alter" && n%3 == 0 {
					return errInjected
				}
				return nil
			},
			Reject: func(_ string, row desttest.Row) string {
				if row.Cells["id"] == "2" {
					return "no"
				}
				return ""
			},
		})
		if err := r.once(p); err != nil {
			t.Fatal(err)
		}
		q := r.worker("b")
		q.Config.Drain = time.Second
		q.Destination = &stuck{r.memory, "orders"}
		r.put(0, 6, 7)
		w := r.start(q)
		r.until("all is read", func() bool { return r.count(kinetl.EventFetched) > 10 })
		w.drain(t)
	})
	checked.AssertSize(t, 0)
}

// A destination that stores rows in groups gets whole ones, as long as that many are
// waiting: parts are cut to fit, and still hold each record once, in order, with its
// dead letters where they belong.
func TestCommitsOfWholeRowGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		for id := range 60 {
			if id%7 == 3 {
				r.putText(id%2, fmt.Sprintf(`{"id":%d`, id))
				continue
			}
			r.put(id%2, id)
		}
		p := r.worker("a")
		p.Config.Batch.Rows, p.Config.RowGroup = 7, 4
		var mu sync.Mutex
		commits := map[int]int{} // rows of a commit -> how many had so many
		waiting := make(chan struct{})
		p.Destination = counting{r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
			if step == "commit:begin" {
				<-waiting
			}
			return nil
		}}), func(parts []kinetl.Part) {
			mu.Lock()
			defer mu.Unlock()
			rows := 0
			for _, part := range parts {
				rows += int(part.NumRows())
				for _, d := range part.DeadLetters {
					if at := kinetl.At(d.Sequence, d.Sub); at <= part.After || at > part.Through {
						t.Errorf("a dead letter at %s in a part from %s to %s", at, part.After, part.Through)
					}
				}
			}
			commits[rows]++
		}}
		p.Consumer.Config.Once = true
		w := r.start(p)
		synctest.Wait() // both shards are read, their parts wait behind the first commit
		close(waiting)
		if err := r.end(w); err != nil {
			t.Fatal(err)
		}
		r.wantInOrder()
		if n := len(r.memory.Read("orders").DeadLetters); n != 9 {
			t.Errorf("%d dead letters, want 9", n)
		}
		whole, other := 0, 0
		for rows, n := range commits {
			if rows > 4 && rows%4 != 0 {
				t.Errorf("a commit of %d rows", rows)
			}
			if rows > 4 {
				whole += n
			} else {
				other += n
			}
		}
		if whole == 0 {
			t.Errorf("no commit of several row groups among %v", commits)
		}
	})
}

// counting shows every commit to see.
type counting struct {
	kinetl.Destination
	see func([]kinetl.Part)
}

func (c counting) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	c.see(parts)
	return c.Destination.Commit(ctx, table, parts)
}
