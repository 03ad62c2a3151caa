package desttest

import (
	"context"
	"errors"
	"slices"

	"github.com/kinetl/kinetl"
)

// Prepare implements kinetl.Destination.
func (m *Memory) Prepare(ctx context.Context, table string, want kinetl.Schema, changes kinetl.TypeChanges) (kinetl.Schema, error) {
	var got kinetl.Schema
	err := m.transact(ctx, "prepare", table, func(t *memoryTable) error {
		joined := t.schema.Join(creatable(want), changes)
		rows := make([]Row, len(t.rows))
		for i, r := range t.rows {
			rows[i] = r.widen(t.schema, joined)
		}
		t.schema, t.rows = joined, rows
		got = append(kinetl.Schema(nil), joined...)
		return m.fault(ctx, "prepare:alter")
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// creatable is the columns that a table would get for want: a key that was only
// ever null makes none, and a column that is made anew is nobody else's.
func creatable(want kinetl.Schema) kinetl.Schema {
	var out kinetl.Schema
	for _, c := range want {
		if c.Class != kinetl.Unset {
			out = append(out, kinetl.Column{Name: c.Name, Class: c.Class})
		}
	}
	return out
}

// Claim implements kinetl.Destination.
func (m *Memory) Claim(ctx context.Context, table string, claims []kinetl.Claim) (kinetl.Claimed, error) {
	got := kinetl.Claimed{Through: map[kinetl.ShardID]kinetl.Position{}}
	err := m.transact(ctx, "claim", table, func(t *memoryTable) error {
		for _, c := range claims {
			if _, exists := t.watermarks[c.Shard]; !exists && c.Start == "" {
				continue
			}
			if err := m.claim(t, table, c); err != nil {
				return err
			}
			got.Through[c.Shard] = t.watermarks[c.Shard].through
		}
		return m.fault(ctx, "claim:watermarks")
	})
	if err != nil {
		return kinetl.Claimed{}, err
	}
	m.tables.mu.Lock()
	got.Sink = m.tables.sink
	m.tables.mu.Unlock()
	return got, nil
}

func (m *Memory) claim(t *memoryTable, table string, c kinetl.Claim) error {
	for _, p := range c.Parents {
		if m.opts.NoParentCheck {
			break
		}
		mark, exists := t.watermarks[p.Shard]
		if err := m.owns(mark, exists, table, p.Shard); err != nil {
			return err
		}
		switch {
		case mark.through == kinetl.End:
		case !p.Ended:
			return &kinetl.UnfinishedParentError{Shard: c.Shard, Parent: p.Shard, Table: table, Through: mark.through}
		default:
			if exists {
				t.gaps = append(t.gaps, Gap{Shard: p.Shard, From: mark.through, To: kinetl.End, Reason: EndedElsewhere, At: m.now().UTC()})
			}
			t.watermarks[p.Shard] = memoryMark{m.opts.Application, kinetl.End}
		}
	}
	mark, exists := t.watermarks[c.Shard]
	if err := m.owns(mark, exists, table, c.Shard); err != nil {
		return err
	}
	if !exists {
		mark.through = c.Start
	}
	mark.application = m.opts.Application
	t.watermarks[c.Shard] = mark
	return nil
}

func (m *Memory) owns(mark memoryMark, exists bool, table string, shard kinetl.ShardID) error {
	if !exists || mark.application == m.opts.Application || m.opts.Adopt || m.opts.NoApplicationRule {
		return nil
	}
	return &kinetl.OtherApplicationError{Shard: shard, Table: table, Owner: mark.application, Mine: m.opts.Application}
}

// Commit implements kinetl.Destination.
func (m *Memory) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	var report kinetl.CommitReport
	err := m.transact(ctx, "commit", table, func(t *memoryTable) error {
		if err := m.fault(ctx, "commit:read"); err != nil {
			return err
		}
		apply, moved, fenced := m.admit(t, parts)
		report.Fenced = fenced
		if err := m.storeRows(t, table, apply); err != nil {
			return err
		}
		if err := m.fault(ctx, "commit:rows"); err != nil {
			return err
		}
		for _, p := range apply {
			for _, d := range p.DeadLetters {
				d.Payload = append([]byte(nil), d.Payload...)
				t.deadLetters = append(t.deadLetters, DeadLetter{Shard: p.Shard, DeadLetter: d})
			}
			if p.Gap != nil {
				t.gaps = append(t.gaps, Gap{Shard: p.Shard, From: p.After, To: p.Gap.To, Reason: p.Gap.Reason, At: m.now().UTC()})
			}
		}
		if err := m.fault(ctx, "commit:deadletters"); err != nil {
			return err
		}
		for shard, through := range moved {
			t.watermarks[shard] = memoryMark{m.opts.Application, through}
		}
		return m.fault(ctx, "commit:watermarks")
	})
	if err != nil {
		return kinetl.CommitReport{}, err
	}
	return report, nil
}

// admit is Admit on the rows that are this application's, with the switches that
// break it.
func (m *Memory) admit(t *memoryTable, parts []kinetl.Part) (apply []kinetl.Part, moved, fenced map[kinetl.ShardID]kinetl.Position) {
	stored := map[kinetl.ShardID]kinetl.Position{}
	for shard, mark := range t.watermarks {
		if mark.application == m.opts.Application || m.opts.NoApplicationRule {
			stored[shard] = mark.through
		}
	}
	if m.opts.NoFence {
		moved = map[kinetl.ShardID]kinetl.Position{}
		for _, p := range parts {
			moved[p.Shard] = p.Through
		}
		return parts, moved, nil
	}
	if m.opts.CommitCreatesRow {
		for _, p := range parts {
			if _, exists := stored[p.Shard]; !exists {
				stored[p.Shard] = p.After
			}
		}
	}
	apply, moved, fenced = kinetl.Admit(stored, parts)
	for shard, at := range fenced {
		if mark, exists := t.watermarks[shard]; exists && at == "" {
			fenced[shard] = mark.through
		}
	}
	return apply, moved, fenced
}

func (m *Memory) storeRows(t *memoryTable, table string, apply []kinetl.Part) error {
	for _, p := range apply {
		if p.Rows == nil {
			continue
		}
		if diff := p.Schema.Differs(t.schema); diff != "" && !m.opts.NoSchemaCheck {
			return &kinetl.SchemaChangedError{Table: table, Detail: diff}
		}
		rows := RowsOf(p, t.schema)
		if m.opts.Reject != nil {
			refused := &kinetl.RejectedError{Shard: p.Shard, Table: table}
			for _, row := range rows {
				if reason := m.opts.Reject(table, row); reason != "" {
					refused.Rows = append(refused.Rows, kinetl.RejectedRow{Position: row.Position, Reason: reason})
				}
			}
			if len(refused.Rows) > 0 {
				return refused
			}
		}
		t.rows = append(t.rows, rows...)
	}
	return nil
}

// Move implements kinetl.Destination.
func (m *Memory) Move(ctx context.Context, table string, moves []kinetl.Move, reason string) error {
	return m.transact(ctx, "move", table, func(t *memoryTable) error { return m.move(ctx, t, table, moves, reason) })
}

func (m *Memory) move(ctx context.Context, t *memoryTable, table string, moves []kinetl.Move, reason string) error {
	for _, mv := range moves {
		mark, exists := t.watermarks[mv.Shard]
		if err := m.owns(mark, exists, table, mv.Shard); err != nil {
			return err
		}
		if !exists || mark.through != mv.From {
			return &kinetl.MovedError{Shard: mv.Shard, Table: table, Stored: mark.through, Wanted: mv.From}
		}
		t.watermarks[mv.Shard] = memoryMark{m.opts.Application, mv.To}
		t.gaps = append(t.gaps, Gap{Shard: mv.Shard, From: mv.From, To: mv.To, Reason: reason, At: m.now().UTC()})
	}
	return m.fault(ctx, "move:watermarks")
}

var errRehearsed = errors.New("rehearsed")

// MoveAndDelete implements kinetl.RowDeleter. Memory knows each row's record; as an
// engine could not, it refuses tables whose columns do not tell it.
func (m *Memory) MoveAndDelete(ctx context.Context, table string, moves []kinetl.Move, reason string, rehearse bool) (map[kinetl.ShardID]kinetl.Deleted, error) {
	deleted := map[kinetl.ShardID]kinetl.Deleted{}
	err := m.transact(ctx, "move", table, func(t *memoryTable) error {
		if err := m.move(ctx, t, table, moves, reason); err != nil {
			return err
		}
		for _, mv := range moves {
			if mv.Again == "" {
				continue
			}
			if len(t.schema) > 0 && t.schema.Index(kinetl.ObjectColumn) < 0 && (t.schema.Index(kinetl.ShardColumn) < 0 || t.schema.Index(kinetl.SequenceColumn) < 0) {
				return &kinetl.UndeletableError{Table: table, Reason: "no column tells a row's record"}
			}
			again := func(shard kinetl.ShardID, at kinetl.Position) bool { return shard == mv.Shard && at >= mv.Again }
			rows := slices.DeleteFunc(slices.Clone(t.rows), func(r Row) bool { return again(r.Shard, r.Position) })
			dead := slices.DeleteFunc(slices.Clone(t.deadLetters), func(d DeadLetter) bool { return again(d.Shard, kinetl.At(d.Sequence, d.Sub)) })
			deleted[mv.Shard] = kinetl.Deleted{Rows: int64(len(t.rows) - len(rows)), DeadLetters: int64(len(t.deadLetters) - len(dead))}
			t.rows, t.deadLetters = rows, dead
		}
		if rehearse {
			return errRehearsed
		}
		return nil
	})
	if err != nil && !errors.Is(err, errRehearsed) {
		return nil, err
	}
	return deleted, nil
}
