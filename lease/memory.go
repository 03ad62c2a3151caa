package lease

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// Memory is a Store in memory, for tests and simulations. The zero value is empty
// and ready.
type Memory struct {
	mu   sync.Mutex
	rows map[string]Lease
}

// List returns every row, ordered by key.
func (m *Memory) List(context.Context) ([]Lease, error) {
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
func (m *Memory) Get(_ context.Context, key string) (Lease, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.rows[key]
	return l, ok, nil
}

// Create adds a row.
func (m *Memory) Create(_ context.Context, l Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.rows[l.Key]; ok {
		return ErrLost
	}
	if m.rows == nil {
		m.rows = map[string]Lease{}
	}
	m.rows[l.Key] = l
	return nil
}

// Update replaces a row.
func (m *Memory) Update(_ context.Context, old, next Lease) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.same(old) {
		return Lease{}, ErrLost
	}
	next.Key, next.Counter, next.OwnerGone = old.Key, old.Counter+1, false
	m.rows[old.Key] = next
	return next, nil
}

// Delete removes a row.
func (m *Memory) Delete(_ context.Context, l Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.same(l) {
		return ErrLost
	}
	delete(m.rows, l.Key)
	return nil
}

func (m *Memory) same(l Lease) bool {
	have, ok := m.rows[l.Key]
	return ok && have.Owner == l.Owner && have.Counter == l.Counter
}
