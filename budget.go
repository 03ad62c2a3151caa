package kinetl

import (
	"context"
	"sync"
)

// budget is the bytes that records may take between fetch and commit, shared out
// among tables (R27). A table may use its equal share, or hold a single grant of
// any size when it holds nothing else: so every table is guaranteed one page, an
// oversize record enters alone, and a stuck table keeps nothing of another's.
type budget struct {
	mu       sync.Mutex
	total    int64
	accounts []*account
}

func newBudget(total int64) *budget { return &budget{total: total} }

// account is one table's side of the budget.
type account struct {
	budget    *budget
	used      int64
	waiting   []*waiter
	pressured chan struct{} // closed while a reservation waits
}

type waiter struct {
	bytes int64
	ready chan struct{}
}

// grant is bytes held by one page or one part.
type grant struct {
	account *account
	bytes   int64
}

func (b *budget) account() *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &account{budget: b, pressured: make(chan struct{})}
	b.accounts = append(b.accounts, a)
	return a
}

// reserve waits until bytes are free, first come first served.
func (a *account) reserve(ctx context.Context, bytes int64) (*grant, error) {
	a.budget.mu.Lock()
	if len(a.waiting) == 0 && a.fits(bytes) {
		a.used += bytes
		a.budget.mu.Unlock()
		return &grant{a, bytes}, nil
	}
	w := &waiter{bytes, make(chan struct{})}
	if len(a.waiting) == 0 {
		close(a.pressured)
	}
	a.waiting = append(a.waiting, w)
	a.budget.mu.Unlock()

	select {
	case <-w.ready:
		return &grant{a, bytes}, nil
	case <-ctx.Done():
		a.abandon(w)
		return nil, ctx.Err()
	}
}

// abandon takes back a wait that may have been granted at the same moment.
func (a *account) abandon(w *waiter) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	select {
	case <-w.ready:
		a.used -= w.bytes
	default:
		for i := range a.waiting {
			if a.waiting[i] == w {
				a.waiting = append(a.waiting[:i], a.waiting[i+1:]...)
				break
			}
		}
		if len(a.waiting) == 0 {
			a.pressured = make(chan struct{})
		}
	}
	a.admit()
}

func (a *account) fits(bytes int64) bool {
	return a.used <= 0 || a.used+bytes <= a.budget.total/int64(len(a.budget.accounts))
}

// admit grants to waiters in order. The caller holds the lock.
func (a *account) admit() {
	granted := false
	for len(a.waiting) > 0 && a.fits(a.waiting[0].bytes) {
		a.used += a.waiting[0].bytes
		close(a.waiting[0].ready)
		a.waiting = a.waiting[1:]
		granted = true
	}
	if granted && len(a.waiting) == 0 {
		a.pressured = make(chan struct{})
	}
}

// pressure is closed while a reservation of the table waits: whoever holds rows
// that are not yet sealed must seal them, or the wait would never end.
func (a *account) pressure() <-chan struct{} {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.pressured
}

// set changes what the grant holds. Growing never waits: the bytes exist already,
// and the next reservation pays for them.
func (g *grant) set(bytes int64) {
	if g == nil || g.bytes == bytes {
		return
	}
	a := g.account
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.used += bytes - g.bytes
	g.bytes = bytes
	a.admit()
}
