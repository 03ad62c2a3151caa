package lease

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// Memory is a Store in memory, for tests and simulations. The zero value is empty
// and ready. A row is Foreign when it was created so, until its owner changes.
type Memory struct {
	mu   sync.Mutex
	rows map[string]Lease
}

// List returns every row, ordered by key.
func (m *Memory) List(ctx context.Context) ([]Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Lease, 0, len(m.rows))
	for _, l := range m.rows {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Lease) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// Get returns one row.
func (m *Memory) Get(ctx context.Context, key string) (Lease, bool, error) {
	if err := ctx.Err(); err != nil {
		return Lease{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.rows[key]
	return l, ok, nil
}

// Create adds a row.
func (m *Memory) Create(ctx context.Context, l Lease) error {
	return m.write(ctx, func() bool {
		_, exists := m.rows[l.Key]
		if !exists {
			m.rows[l.Key] = l
		}
		return !exists
	})
}

// Update replaces a row.
func (m *Memory) Update(ctx context.Context, old, next Lease) (Lease, error) {
	err := m.write(ctx, func() bool {
		if !m.same(old) {
			return false
		}
		old.Signal = m.rows[old.Key].Signal
		next = Written(old, next)
		m.rows[old.Key] = next
		return true
	})
	if err != nil {
		return Lease{}, err
	}
	return next, nil
}

// Signal sets a row's signal.
func (m *Memory) Signal(ctx context.Context, key, signal string) error {
	return m.write(ctx, func() bool {
		l, exists := m.rows[key]
		if exists {
			l.Signal = signal
			m.rows[key] = l
		}
		return exists
	})
}

// Delete removes a row.
func (m *Memory) Delete(ctx context.Context, l Lease) error {
	return m.write(ctx, func() bool {
		same := m.same(l)
		if same {
			delete(m.rows, l.Key)
		}
		return same
	})
}

// write runs f, which reports whether its condition held.
func (m *Memory) write(ctx context.Context, f func() bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.rows == nil {
		m.rows = map[string]Lease{}
	}
	if !f() {
		return ErrLost
	}
	return nil
}

func (m *Memory) same(l Lease) bool {
	have, ok := m.rows[l.Key]
	return ok && have.Owner == l.Owner && have.Counter == l.Counter
}
