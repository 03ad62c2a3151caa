package kinetl

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// reservation is a reserve that runs on its own.
func reservation(ctx context.Context, a *account, bytes int64) (granted func() *grant) {
	var got *grant
	done := make(chan error, 1)
	go func() {
		g, err := a.reserve(ctx, bytes)
		got = g
		done <- err
	}()
	return func() *grant {
		synctest.Wait()
		select {
		case <-done:
			return got
		default:
			return nil
		}
	}
}

func mustReserve(t *testing.T, a *account, bytes int64) *grant {
	t.Helper()
	g := reservation(t.Context(), a, bytes)()
	if g == nil {
		t.Fatalf("%d bytes are not granted with %d used", bytes, a.used)
	}
	return g
}

func isPressed(a *account) bool {
	select {
	case <-a.pressure():
		return true
	default:
		return false
	}
}

// R27: tables have equal shares; a table that is stuck holds nothing of another's.
func TestSharesAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1000)
		stuck, other := b.account(), b.account()
		mustReserve(t, stuck, 500)
		ctx, cancel := context.WithCancel(t.Context())
		if more := reservation(ctx, stuck, 1); more() != nil {
			t.Error("a table got more than its share")
		}
		mustReserve(t, other, 300)
		mustReserve(t, other, 200)
		cancel()
	})
}

// R27: each table may hold one page whatever its size, when it holds nothing else.
func TestAnOversizePageEntersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBudget(1000).account()
		small := mustReserve(t, a, 1)
		large := reservation(t.Context(), a, 5000)
		if large() != nil {
			t.Error("an oversize page entered beside another")
		}
		next := reservation(t.Context(), a, 1)
		small.set(0)
		g := large()
		if g == nil {
			t.Fatal("an oversize page never enters")
		}
		if next() != nil {
			t.Error("a page entered beside an oversize one")
		}
		g.set(0)
		next().set(0)
		if a.used != 0 {
			t.Errorf("%d bytes are used", a.used)
		}
	})
}

// R27: first come, first served. A small page does not pass a large one for ever.
func TestReservationsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBudget(1000).account()
		held := mustReserve(t, a, 900)
		large := reservation(t.Context(), a, 800)
		synctest.Wait()
		small := reservation(t.Context(), a, 50)
		if large() != nil || small() != nil {
			t.Error("a small page passed a large one that came first")
		}
		held.set(0)
		if large() == nil || small() == nil {
			t.Error("bytes were given back, and not all that fits is granted")
		}
	})
}

// R27: pressure lasts exactly as long as a reservation waits, also one that is given up.
func TestPressureLastsAsLongAsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBudget(1000).account()
		held := mustReserve(t, a, 1000)
		if isPressed(a) {
			t.Error("pressure without a wait")
		}
		ctx, cancel := context.WithCancel(t.Context())
		given := reservation(ctx, a, 10)
		synctest.Wait()
		kept := reservation(t.Context(), a, 20)
		synctest.Wait()
		if !isPressed(a) {
			t.Error("two wait without pressure")
		}
		cancel()
		if given(); !isPressed(a) {
			t.Error("one waits without pressure")
		}
		held.set(0)
		if kept() == nil || isPressed(a) {
			t.Error("pressure without a wait, after one was granted")
		}
	})
}

// budgetStep is one event in the life of a budget.
type budgetStep struct {
	Kind  int // 0, 1: reserve; 2: grow or shrink a grant; 3: give one back; 4: give up a wait
	Which int
	Bytes int64
}

// Whatever is reserved, grown, given up and given back: a grant fits its table's
// share or was alone, what fits does not wait, and in the end nothing is used.
func TestBudgetGivesEverythingBack(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) budgetStep {
		return budgetStep{rapid.IntRange(0, 4).Draw(t, "kind"), rapid.IntRange(0, 7).Draw(t, "which"), rapid.Int64Range(0, 80).Draw(t, "bytes")}
	}), 1, 40)
	rapid.Check(t, func(rt *rapid.T) {
		drawn, wrong := steps.Draw(rt, "steps"), ""
		synctest.Test(t, func(t *testing.T) { wrong = budgetRun(t, drawn) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func budgetRun(t *testing.T, steps []budgetStep) (wrong string) {
	b := newBudget(100)
	accounts := []*account{b.account(), b.account()}
	type wait struct {
		cancel context.CancelFunc
		done   chan *grant
	}
	var waits []wait
	var grants []*grant
	collect := func() {
		synctest.Wait()
		rest := waits[:0]
		for _, w := range waits {
			select {
			case g := <-w.done:
				w.cancel()
				if g != nil {
					grants = append(grants, g)
				}
			default:
				rest = append(rest, w)
			}
		}
		waits = rest
		held := map[*account]int64{}
		for _, g := range grants {
			held[g.account] += g.bytes
		}
		for i, a := range accounts {
			switch {
			case a.used != held[a]:
				wrong = fmt.Sprintf("table %d uses %d bytes, its grants hold %d", i, a.used, held[a])
			case isPressed(a) != (len(a.waiting) > 0):
				wrong = fmt.Sprintf("table %d: %d wait, pressure %v", i, len(a.waiting), isPressed(a))
			case len(a.waiting) > 0 && (a.used == 0 || a.used+a.waiting[0].bytes <= 50):
				wrong = fmt.Sprintf("table %d uses %d bytes, and %d wait", i, a.used, a.waiting[0].bytes)
			}
		}
	}
	for _, s := range steps {
		switch {
		case s.Kind < 2:
			ctx, cancel := context.WithCancel(t.Context())
			w := wait{cancel, make(chan *grant, 1)}
			waits = append(waits, w)
			go func() {
				g, _ := accounts[s.Which%2].reserve(ctx, s.Bytes)
				w.done <- g
			}()
		case s.Kind == 2 && len(grants) > 0:
			grants[s.Which%len(grants)].set(s.Bytes)
		case s.Kind == 3 && len(grants) > 0:
			grants[s.Which%len(grants)].set(0)
		case s.Kind == 4 && len(waits) > 0:
			waits[s.Which%len(waits)].cancel()
		}
		if s.Which > 3 { // else the next step races with this one
			collect()
		}
	}
	for _, w := range waits {
		w.cancel()
	}
	collect()
	for _, g := range grants {
		g.set(0)
	}
	grants = nil
	collect()
	return wrong
}

// A wait for bytes ends with its context, and says so.
func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBudget(10).account()
		mustReserve(t, a, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.reserve(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait ended with %v", err)
		}
	})
}
