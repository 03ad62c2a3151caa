package desttest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/kinetl/kinetl"
)

// Memory is the reference Destination: the contract of kinetl.Destination in the
// least code, with faults on demand. Several handles (see Handle) are several
// workers on one set of tables. It does no I/O and starts no goroutine; a call
// waits only on a channel or in the Fault hook, so it may run in a
// testing/synctest bubble if NewMemory was called inside it.
type Memory struct {
	tables *memoryTables
	opts   MemoryOptions
}

// MemoryOptions are one handle's options. The zero value is a correct destination
// for the application "".
type MemoryOptions struct {
	Application string           // owner of the watermark rows (R1)
	Adopt       bool             // take over rows of other applications
	Now         func() time.Time // default time.Now

	// Fault is called at each step of each call, with names such as
	// "commit:begin". An error at any step makes the call fail; nothing of the
	// call is stored unless the step is ":done", where everything is: the answer
	// was lost. At "begin" and "done" no lock is held; at the steps between, the
	// call holds the tables, so a hook that waits there is a stalled transaction.
	// A hook that waits must also return when ctx ends.
	//
	// Steps: prepare begin, alter, done; claim begin, watermarks, done;
	// commit begin, read, rows, deadletters, watermarks, done; move begin,
	// watermarks, done.
	Fault func(ctx context.Context, step string) error

	// Reject names the reason for which the table refuses a row, or "".
	Reject func(table string, row Row) string

	// The rest breaks the destination on purpose, so that a checker can be shown
	// to notice.
	NoFence           bool // Commit applies everything, wherever the watermark is
	CommitCreatesRow  bool // Commit takes a missing watermark row for one at After
	NoSchemaCheck     bool // Commit does not compare the columns
	NoParentCheck     bool // Claim does not look at parents
	NoApplicationRule bool // any application may use any row
}

type memoryTables struct {
	lock chan struct{} // holds one token; who has it is in a transaction

	mu     sync.Mutex // guards what tables points to; never held across a wait
	tables map[string]*memoryTable
	sink   string
}

type memoryTable struct {
	schema      kinetl.Schema
	rows        []Row
	deadLetters []DeadLetter
	watermarks  map[kinetl.ShardID]memoryMark
	gaps        []Gap
}

type memoryMark struct {
	application string
	through     kinetl.Position
}

// NewMemory makes an empty set of tables and a first handle on it.
func NewMemory(opts MemoryOptions) *Memory {
	lock := make(chan struct{}, 1)
	lock <- struct{}{}
	return &Memory{tables: &memoryTables{lock: lock, tables: map[string]*memoryTable{}, sink: "memory"}, opts: opts}
}

// Handle is another worker on the same tables.
func (m *Memory) Handle(opts MemoryOptions) *Memory {
	return &Memory{tables: m.tables, opts: opts}
}

// SetSink changes the tables' random id, as a restored or replaced database has
// another one (R15).
func (m *Memory) SetSink(id string) {
	m.tables.mu.Lock()
	defer m.tables.mu.Unlock()
	m.tables.sink = id
}

// Read is what the table holds now, rows in the order of their commits. It takes
// no part in transactions and sees committed state only.
func (m *Memory) Read(table string) Contents {
	m.tables.mu.Lock()
	defer m.tables.mu.Unlock()
	t := m.tables.tables[kinetl.Fold(table)]
	if t == nil {
		return Contents{Watermarks: map[kinetl.ShardID]kinetl.Position{}}
	}
	t = t.clone()
	out := Contents{Schema: t.schema, Rows: t.rows, DeadLetters: t.deadLetters, Gaps: t.gaps, Watermarks: map[kinetl.ShardID]kinetl.Position{}}
	for shard, mark := range t.watermarks {
		out.Watermarks[shard] = mark.through
	}
	return out
}

// AddColumn adds a column as somebody else would, between two calls.
func (m *Memory) AddColumn(table string, c kinetl.Column) {
	<-m.tables.lock
	defer func() { m.tables.lock <- struct{}{} }()
	m.tables.mu.Lock()
	defer m.tables.mu.Unlock()
	t := m.tables.tables[kinetl.Fold(table)]
	if t == nil {
		t = newMemoryTable()
	}
	t = t.clone()
	t.schema = append(t.schema, c)
	m.tables.tables[kinetl.Fold(table)] = t
}

// Close does nothing: the tables outlive their handles.
func (m *Memory) Close() error { return nil }

func newMemoryTable() *memoryTable {
	return &memoryTable{watermarks: map[kinetl.ShardID]memoryMark{}}
}

// clone shares the rows' backing arrays: transactions are serialized and only
// append, and a clone that is thrown away leaves nothing below the old length.
func (t *memoryTable) clone() *memoryTable {
	c := *t
	c.schema = append(kinetl.Schema(nil), t.schema...)
	c.watermarks = maps.Clone(t.watermarks)
	return &c
}

// transact runs one call: fn changes a copy of the table, which becomes the table
// if fn returns nil.
func (m *Memory) transact(ctx context.Context, call, table string, fn func(t *memoryTable) error) error {
	if err := m.fault(ctx, call+":begin"); err != nil {
		return err
	}
	if err := m.locked(ctx, call, table, fn); err != nil {
		return err
	}
	return m.fault(ctx, call+":done")
}

func (m *Memory) locked(ctx context.Context, call, table string, fn func(t *memoryTable) error) error {
	select {
	case <-m.tables.lock:
	case <-ctx.Done():
		return fmt.Errorf("%s of table %s: %w", call, table, context.Cause(ctx))
	}
	defer func() { m.tables.lock <- struct{}{} }()

	m.tables.mu.Lock()
	t := m.tables.tables[kinetl.Fold(table)]
	m.tables.mu.Unlock()
	if t == nil {
		t = newMemoryTable()
	}
	t = t.clone()
	if err := fn(t); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s of table %s: %w", call, table, context.Cause(ctx))
	}
	m.tables.mu.Lock()
	m.tables.tables[kinetl.Fold(table)] = t
	m.tables.mu.Unlock()
	return nil
}

func (m *Memory) fault(ctx context.Context, step string) error {
	if err := ctx.Err(); err != nil && step[len(step)-5:] != ":done" {
		return fmt.Errorf("%s: %w", step, context.Cause(ctx))
	}
	if m.opts.Fault == nil {
		return nil
	}
	if err := m.opts.Fault(ctx, step); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func (m *Memory) now() time.Time {
	if m.opts.Now == nil {
		return time.Now()
	}
	return m.opts.Now()
}
