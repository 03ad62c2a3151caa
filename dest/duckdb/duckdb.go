// Package duckdb stores parts in tables of one DuckDB file. Rows, dead letters and
// watermarks of a commit are in one transaction, so the file holds each record once.
//
// In the namespace stand the rows table, as the user names it, its dead letters in
// <table>_dead_letters, and for all tables together _kinetl_watermarks and
// _kinetl_gaps.
//
// With the build tag duckdb_arrow rows pass to the engine as Arrow buffers; without
// it they are appended one by one, with the same result at a fraction of the speed.
package duckdb

import (
	"context"
	"fmt"

	"github.com/kinetl/kinetl"
)

var _ kinetl.Destination = (*Destination)(nil)

// Commit implements kinetl.Destination.
//
// Two workers that commit the same shard at once meet at the watermark's row:
// DuckDB lets one UPDATE through and fails the other at once, which then fails as a
// whole. Rows go first and watermarks last so that row is held for the shortest time.
func (d *Destination) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	c := &commit{table: table, parts: parts}
	err := d.transact(ctx, func(t *tx) error { return c.run(ctx, t) })
	if err != nil && len(c.Apply) > 0 && c.inserting && isDataError(err) {
		err = d.findRefused(ctx, c, err)
	}
	if err != nil {
		return kinetl.CommitReport{}, fmt.Errorf("commit to %s: %w", table, err)
	}
	return kinetl.CommitReport{Fenced: c.Fenced}, nil
}

// commit is one call of Commit.
type commit struct {
	table   string
	parts   []kinetl.Part
	columns []column // as the commit's transaction sees them
	kinetl.Admitted

	inserting bool // the failure, if any, is of the INSERT of rows
}

func (c *commit) run(ctx context.Context, t *tx) error {
	rules := t.rules(c.table, "")
	var err error
	if c.Admitted, err = rules.Admit(ctx, c.parts); err != nil || len(c.Apply) == 0 {
		return err
	}
	if c.columns, err = t.columns(ctx, c.table); err != nil {
		return err
	}
	batches, err := c.batches(t.d)
	if err != nil {
		return err
	}
	t.d.opts.Observe("insert")
	c.inserting = true
	if err := t.insertRows(ctx, c.table, c.columns, batches); err != nil {
		return err
	}
	c.inserting = false
	t.d.opts.Observe("dead letters")
	if err := t.insertDeadLetters(ctx, c.table, c.Apply); err != nil {
		return err
	}
	t.d.opts.Observe("watermarks")
	for _, m := range c.Moved {
		if err := rules.Rows.Set(ctx, m.Shard, m.From, m.To); err != nil {
			return err
		}
	}
	for _, p := range c.Apply {
		if p.Gap == nil {
			continue
		}
		if err := rules.Rows.RecordGap(ctx, kinetl.Move{Shard: p.Shard, From: p.After, To: p.Gap.To}, p.Gap.Reason); err != nil {
			return err
		}
	}
	return nil
}

// batches are the rows to insert, once they are known to fit the table as it is in
// this transaction (R9).
func (c *commit) batches(d *Destination) ([]batch, error) {
	have := schemaOf(c.columns)
	var out []batch
	for _, p := range c.Apply {
		if p.NumRows() == 0 {
			continue
		}
		if len(have) == 0 {
			return nil, &kinetl.SchemaChangedError{Table: c.table, Detail: "the table is gone"}
		}
		if diff := p.Schema.Differs(have); diff != "" {
			return nil, &kinetl.SchemaChangedError{Table: c.table, Detail: diff}
		}
		if diff := c.missesValue(d, p); diff != "" {
			return nil, &kinetl.SchemaChangedError{Table: c.table, Detail: diff}
		}
		if refused := checkValues(p, c.table); refused != nil {
			return nil, refused
		}
		out = append(out, batch{schema: p.Schema, rows: p.Rows})
	}
	return out, nil
}

// missesValue names a column that somebody made NOT NULL since Prepare and that the
// part leaves null. Prepare will drop the constraint.
func (c *commit) missesValue(d *Destination, p kinetl.Part) string {
	for _, col := range c.columns {
		if !col.notNull || col.primary || d.kept(c.table, col.Name) {
			continue
		}
		i := p.Schema.Index(col.Name)
		if i < 0 && !col.hasDefault || i >= 0 && p.Rows.Column(i).NullN() > 0 {
			return fmt.Sprintf("column %q is NOT NULL and rows leave it null", col.Name)
		}
	}
	return ""
}
