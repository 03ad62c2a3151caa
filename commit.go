package kinetl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// table is one destination table: the schema in force as this process knows it, and
// the one goroutine that commits to it. Shards hand it parts; it commits whatever
// has gathered while the previous commit ran.
type table struct {
	name    string
	dest    Destination
	changes TypeChanges
	base    Schema // metadata columns, wanted from the start
	group   int64  // rows of a row group; 0: any number is as good
	account *account
	observe observer
	wake    chan struct{} // a part was queued

	preparing chan struct{} // one-slot lock: Prepare is called by one goroutine at a time

	mu     sync.Mutex
	schema Schema
	ready  bool // schema was read
	sinkID string
	queue  []*pending
}

// pending is a part on its way into the table.
type pending struct {
	part   Part
	shard  *Shard
	grant  *grant
	tip    time.Time // the shard was read to its tip then, or zero
	flight *flight
}

func newTable(name string, p *pipeline) *table {
	return &table{
		name: name, dest: p.Destination, changes: p.Config.TypeChanges,
		base: MetadataSchema(p.Config.Metadata), group: int64(p.Config.RowGroup), account: p.budget.account(), observe: p.observe,
		wake: make(chan struct{}, 1), preparing: make(chan struct{}, 1),
	}
}

func (t *table) current() Schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.schema
}

// column is the column of the table that name matches.
func (t *table) column(name string) Column {
	schema := t.current()
	if i := schema.Index(name); i >= 0 {
		return schema[i]
	}
	return Column{Name: name}
}

func (t *table) setSink(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sinkID = id
}

// sink is the mark that a checkpoint at p carries (R15).
func (t *table) sink(p Position) lease.Sink {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lease.Sink{ID: t.sinkID, Table: t.name, Position: string(p)}
}

func (t *table) submit(p *pending) {
	p.flight.add()
	t.mu.Lock()
	t.queue = append(t.queue, p)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run commits until ctx ends. Parts that are then still queued are dropped; the
// watermark says where to go on.
func (t *table) run(ctx context.Context) {
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			t.mu.Lock()
			dropped := t.queue
			t.queue = nil
			t.mu.Unlock()
			t.land(dropped, ctx.Err())
			return
		}
		for batch := t.take(); len(batch) > 0; batch = t.take() {
			t.commit(ctx, batch)
		}
	}
}

// take is the next commit: everything that is queued, or as much of it as fills whole
// row groups. What is over stands at the head of the queue and goes next.
func (t *table) take() []*pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	batch := t.queue
	t.queue = nil
	if t.group == 0 {
		return batch
	}
	rows := int64(0)
	for _, p := range batch {
		rows += p.part.NumRows()
	}
	room := rows - rows%t.group
	if room == 0 {
		return batch
	}
	for i, p := range batch {
		switch n := p.part.NumRows(); {
		case n < room:
			room -= n
		case n == room:
			t.queue = slices.Clone(batch[i+1:])
			return batch[:i+1]
		default:
			first, rest := p.cut(room)
			t.queue = append([]*pending{rest}, batch[i+1:]...)
			return append(batch[:i:i], first)
		}
	}
	return batch
}

// cut makes two of a part, the first of n rows. The second keeps the memory, which
// both hold until it lands.
func (p *pending) cut(n int64) (first, rest *pending) {
	first, rest = &pending{shard: p.shard, flight: p.flight}, &pending{shard: p.shard, grant: p.grant, tip: p.tip, flight: p.flight}
	first.part, rest.part = p.part.cut(int(n))
	p.part.Rows.Release()
	p.flight.add()
	return first, rest
}

// commit stores a batch, repeating it until its outcome is known: a commit whose
// answer was lost is repeated too, and Admit skips what it had stored.
func (t *table) commit(ctx context.Context, batch []*pending) {
	for attempt := 0; len(batch) > 0; attempt++ {
		started := time.Now()
		parts, err := t.conform(ctx, &batch)
		if len(batch) == 0 {
			return
		}
		var report CommitReport
		if err == nil {
			report, err = t.dest.Commit(ctx, t.name, parts)
		}
		for _, p := range parts {
			if p.Rows != nil {
				p.Rows.Release() // those of conform; the batch keeps its own
			}
		}
		var changed *SchemaChangedError
		var rejected *RejectedError
		var broken *BrokenError
		switch {
		case err == nil:
			t.settle(batch, report, time.Since(started))
			return
		case ctx.Err() != nil:
			t.land(batch, ctx.Err())
			return
		case errors.As(err, &changed):
			t.forget()
			t.land(batch, err)
			return
		case errors.As(err, &rejected):
			batch = t.without(batch, rejected)
			continue
		case errors.As(err, &broken):
			t.land(batch, &fatalError{err})
			return
		}
		t.observe.emit(Event{Kind: EventRetrying, Table: t.name, Reason: "committing", Err: err})
		if !pause(ctx, backoff(attempt)) {
			t.land(batch, ctx.Err())
			return
		}
	}
}

// conform makes the table able to hold the batch, and the batch fit the table.
// Parts that can't fit are read again with the table's schema known.
func (t *table) conform(ctx context.Context, batch *[]*pending) ([]Part, error) {
	var want Schema
	for _, p := range *batch {
		want = want.Join(p.part.Schema, t.changes)
	}
	if err := t.prepare(ctx, want); err != nil {
		return nil, fmt.Errorf("prepare table %s: %w", t.name, err)
	}
	schema := t.current()
	var parts []Part
	var fit []*pending
	misfit := map[ShardID]error{}
	for _, p := range *batch {
		part := p.part
		err := misfit[part.Shard]
		if err == nil && part.Rows != nil && t.changes == Refuse {
			err = dropsEmpty(part.Schema, schema)
		}
		if err == nil && part.Rows != nil {
			part.Rows, part.Schema, err = Conform(part.Rows, part.Schema, schema)
		}
		if err != nil {
			misfit[part.Shard] = err
			t.land([]*pending{p}, &SchemaChangedError{Table: t.name, Detail: err.Error()})
			continue
		}
		parts, fit = append(parts, part), append(fit, p)
	}
	*batch = fit
	return parts, nil
}

// dropsEmpty refuses a batch that was sealed with a column of scalars where the
// table has come to have one of JSON or text: {} and [] beside the scalars became
// NULL in it, and the table would have kept them.
func dropsEmpty(batch, table Schema) error {
	for _, c := range batch {
		i := table.Index(c.Name)
		if i >= 0 && holdsEmpty(table[i].Class) && !holdsEmpty(c.Class) && c.Class.Kind() != KindFixed {
			return fmt.Errorf("column %q is %s, was %s", c.Name, table[i].Class, c.Class)
		}
	}
	return nil
}

// prepare makes the table hold at least the columns of want. It asks the
// destination only when the schema in force is not known to do so.
func (t *table) prepare(ctx context.Context, want Schema) error {
	select {
	case t.preparing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.preparing }()
	t.mu.Lock()
	have, ready := t.schema, t.ready
	t.mu.Unlock()
	if ready && have.Join(want, t.changes).Differs(have) == "" {
		return nil
	}
	got, err := t.dest.Prepare(ctx, t.name, t.base.Join(want, t.changes), t.changes)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.schema, t.ready = got, true
	t.mu.Unlock()
	if ready {
		t.observe.emit(Event{Kind: EventSchema, Table: t.name, Reason: have.changedTo(got)})
	}
	return nil
}

// forget makes the next prepare read the table's schema again.
func (t *table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = false
}

// settle tells every shard what the commit did to its parts.
func (t *table) settle(batch []*pending, report CommitReport, took time.Duration) {
	for _, p := range batch {
		if stored, out := report.Fenced[p.part.Shard]; out {
			t.land([]*pending{p}, &FencedError{Shard: p.part.Shard, Table: t.name, Stored: stored, After: p.part.After})
			continue
		}
		if p.part.Through != End {
			// The end is noted by the session, which then writes it at once.
			p.shard.Checkpoint(p.part.Through, t.sink(p.part.Through))
		}
		if !p.tip.IsZero() {
			p.shard.CaughtUp(p.tip)
		}
		t.observe.emit(Event{
			Kind: EventCommitted, Shard: p.part.Shard, Table: t.name, Position: p.part.Through,
			Rows: p.part.NumRows(), DeadLetters: int64(len(p.part.DeadLetters)), Took: took,
		})
		t.land([]*pending{p}, nil)
	}
}

// without fails the parts of the shard whose rows were refused, and keeps the rest.
func (t *table) without(batch []*pending, e *RejectedError) []*pending {
	var rest []*pending
	for _, p := range batch {
		if p.part.Shard == e.Shard {
			t.land([]*pending{p}, e)
		} else {
			rest = append(rest, p)
		}
	}
	return rest
}

// land gives back the parts' memory and tells their sessions.
func (t *table) land(batch []*pending, err error) {
	for _, p := range batch {
		if p.part.Rows != nil {
			p.part.Rows.Release()
		}
		p.grant.set(0)
		p.flight.land(err)
	}
}

// flight counts one session's parts between seal and commit.
type flight struct {
	changed chan struct{} // something landed

	mu     sync.Mutex
	out    int
	landed bool
	err    error // the first
}

func newFlight() *flight { return &flight{changed: make(chan struct{}, 1)} }

func (f *flight) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out++
}

func (f *flight) land(err error) {
	f.mu.Lock()
	f.out--
	f.landed = f.landed || err == nil
	if f.err == nil {
		f.err = err
	}
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// idle reports whether all parts are durable. Parts that came to nothing are not,
// though none is in flight any more.
func (f *flight) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out == 0 && f.err == nil
}

func (f *flight) state() (idle, landed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out == 0 && f.err == nil, f.landed, f.err
}
