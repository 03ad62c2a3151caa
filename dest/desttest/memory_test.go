package desttest

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"

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
