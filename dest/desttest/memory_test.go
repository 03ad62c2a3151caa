package desttest

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
)

func TestMemory(t *testing.T) { Run(t, memoryHarness) }

func memoryHarness(t *testing.T) Harness {
	f := &faults{}
	first := NewMemory(MemoryOptions{})
	return Harness{
		Open: func(_ *testing.T, application string, adopt bool) kinetl.Destination {
			return first.Handle(MemoryOptions{Application: application, Adopt: adopt, Fault: f.at, Reject: rejectMisfits(first)})
		},
		Read: func(_ *testing.T, table string, _ kinetl.Schema) Contents { return first.Read(table) },
		AddColumn: func(_ *testing.T, table, name, typ string, _ bool) {
			classes := map[string]kinetl.Class{"INTEGER": kinetl.Int64, "BIGINT": kinetl.Int64, "REAL": kinetl.Double, "DECIMAL(10,2)": kinetl.Number}
			class, ok := classes[typ]
			if !ok {
				class = kinetl.Text
			}
			if typ == "VARCHAR" || typ == "BIGINT" {
				typ = ""
			}
			first.AddColumn(table, kinetl.Column{Name: name, Class: class, Cap: true, Native: typ})
		},
		FailStatement: f.fail,
		LoseCommit:    f.lose,
	}
}

// faults fails the nth step of the calls to come.
type faults struct {
	mu      sync.Mutex
	n       int
	losing  bool
	current int
}

func (f *faults) fail(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n, f.current = n, 0
}

func (f *faults) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.losing = true
}

func (f *faults) at(_ context.Context, step string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.HasSuffix(step, ":done") {
		if f.losing && step == "commit:done" {
			f.losing = false
			return errors.New("injected: answer lost")
		}
		return nil
	}
	f.current++
	if f.n > 0 && f.current == f.n {
		return errors.New("injected fault")
	}
	return nil
}

func rejectMisfits(m *Memory) func(table string, row Row) string {
	return func(table string, row Row) string {
		schema := m.Read(table).Schema
		for _, c := range schema {
			value, ok := row.Cells[c.Name]
			if !ok || c.Native == "" {
				continue
			}
			x, number := new(big.Rat).SetString(value)
			fits := number
			switch c.Native {
			case "INTEGER":
				fits = fits && x.Cmp(big.NewRat(1<<31, 1)) < 0 && x.Cmp(big.NewRat(-1<<31, 1)) >= 0
			case "DECIMAL(10,2)":
				y := new(big.Rat).Mul(x, big.NewRat(100, 1))
				fits = fits && y.IsInt() && y.Num().CmpAbs(big.NewInt(1e10)) < 0
			case "REAL":
				f, exact := x.Float32()
				fits = fits && exact && f == f
			case "DATE":
				fits = value == "2026-02-28"
			}
			if !fits {
				return "column " + c.Name + " does not hold " + value
			}
		}
		return ""
	}
}

// The suite notices each of the ways in which Memory can be broken. A broken
// destination fails the case in a copy of it that reports to nobody.
func TestBrokenMemoryIsNoticed(t *testing.T) {
	ctx := context.Background()
	stale := part(shard0, at(5), at(6), letters, 6, people(6, 1, "stale")...)
	for name, c := range map[string]struct {
		broken MemoryOptions
		check  func(m *Memory) bool // reports whether the promise holds
	}{
		"fence": {MemoryOptions{NoFence: true}, func(m *Memory) bool {
			report, err := m.Commit(ctx, "orders", []kinetl.Part{stale})
			return err == nil && len(report.Fenced) == 1 && len(m.Read("orders").Rows) == 0
		}},
		"missing row": {MemoryOptions{CommitCreatesRow: true}, func(m *Memory) bool {
			p := stale
			p.Shard = shard1
			report, err := m.Commit(ctx, "orders", []kinetl.Part{p})
			return err == nil && len(report.Fenced) == 1
		}},
		"schema": {MemoryOptions{NoSchemaCheck: true}, func(m *Memory) bool {
			_, err := m.Prepare(ctx, "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}}, kinetl.Refuse)
			if err != nil {
				return false
			}
			_, err = m.Commit(ctx, "orders", []kinetl.Part{part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "a")...)})
			var changed *kinetl.SchemaChangedError
			return errors.As(err, &changed)
		}},
		"parents": {MemoryOptions{NoParentCheck: true}, func(m *Memory) bool {
			_, err := m.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard1, Start: kinetl.Oldest, Parents: []kinetl.ParentClaim{{Shard: shard0}}}})
			var unfinished *kinetl.UnfinishedParentError
			return errors.As(err, &unfinished)
		}},
		"application": {MemoryOptions{NoApplicationRule: true}, func(m *Memory) bool {
			opts := m.opts
			opts.Application = "other"
			_, err := m.Handle(opts).Claim(ctx, "orders", []kinetl.Claim{{Shard: shard0, Start: kinetl.Oldest}})
			var other *kinetl.OtherApplicationError
			return errors.As(err, &other)
		}},
	} {
		for _, broken := range []bool{false, true} {
			opts := MemoryOptions{}
			if broken {
				opts = c.broken
			}
			m := NewMemory(opts)
			if _, err := m.Prepare(ctx, "orders", letters, kinetl.Refuse); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard0, Start: kinetl.Oldest}}); err != nil {
				t.Fatal(err)
			}
			if holds := c.check(m); holds == broken {
				t.Errorf("%s: broken %v, and the promise holds: %v", name, broken, holds)
			}
		}
	}
}

// A stalled transaction holds the tables; who waits for them leaves when told to.
func TestMemoryStallsUnderSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := func(ctx context.Context, step string) error {
			if step != "commit:rows" {
				return nil
			}
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		m := NewMemory(MemoryOptions{})
		slow := m.Handle(MemoryOptions{Fault: stall})
		ctx := context.Background()
		if _, err := m.Prepare(ctx, "orders", letters, kinetl.Refuse); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard0, Start: kinetl.Oldest}}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := slow.Commit(ctx, "orders", []kinetl.Part{part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "slow")...)}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := m.Commit(short, "orders", []kinetl.Part{part(shard0, kinetl.Oldest, at(2), letters, 1, people(1, 2, "fast")...)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("commit behind a stalled one: %v, want the deadline", err)
		}
		if n := len(m.Read("orders").Rows); n != 0 {
			t.Errorf("%d rows are seen before their commit", n)
		}
		wg.Wait()
		if n := len(m.Read("orders").Rows); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}
