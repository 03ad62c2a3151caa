// Package postgres stores parts in tables of one schema of a PostgreSQL database.
// Rows, dead letters and watermarks of a commit are in one transaction, so the
// database holds each record once, however many processes load it.
//
// In the schema stand the rows table, as the user names it, its dead letters in
// <table>_dead_letters, and for all tables together _kinetl_watermarks and
// _kinetl_gaps.
//
// Rows go by COPY in the binary format, written straight from Arrow's buffers.
package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/kinetl/kinetl"
)

var _ kinetl.Destination = (*Destination)(nil)

// Commit implements kinetl.Destination.
//
// Two workers that commit the same shard at once meet at the watermark's row, which
// comes last: the second waits for the first, finds that the row has moved, and fails
// as a whole (R11). COPY first and watermarks last also holds the row for the shortest
// time.
func (d *Destination) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	var c *commit
	err := d.transact(ctx, func(t *tx) error {
		c = &commit{table: table, parts: parts}
		return c.run(ctx, t)
	})
	if err != nil && c != nil && c.storing && isDataError(err) {
		err = d.findRefused(ctx, c, err)
	}
	if err != nil {
		return kinetl.CommitReport{}, fmt.Errorf("commit to %s: %w", table, err)
	}
	return kinetl.CommitReport{Fenced: c.Fenced}, nil
}

// commit is one try of one call of Commit.
type commit struct {
	table   string
	parts   []kinetl.Part
	columns []column // as the commit's transaction sees them
	kinetl.Admitted

	storing bool // the failure, if any, is of the rows and dead letters
}

func (c *commit) run(ctx context.Context, t *tx) error {
	rules := t.rules(c.table, "")
	var err error
	if c.Admitted, err = rules.Admit(ctx, c.parts); err != nil || len(c.Apply) == 0 {
		return err
	}
	c.storing = true
	if err := c.store(ctx, t); err != nil {
		return err
	}
	c.storing = false
	for _, p := range c.Apply {
		if p.Gap == nil {
			continue
		}
		if err := rules.Rows.RecordGap(ctx, kinetl.Move{Shard: p.Shard, From: p.After, To: p.Gap.To}, p.Gap.Reason); err != nil {
			return err
		}
	}
	t.d.opts.Observe("watermarks")
	return watermarks{tx: t, table: c.table}.setAll(ctx, c.Moved)
}

// store stores rows and dead letters.
func (c *commit) store(ctx context.Context, t *tx) error {
	rows := c.rows()
	if len(rows) > 0 {
		if err := c.lockColumns(ctx, t); err != nil {
			return err
		}
		if err := c.check(t.d, rows); err != nil {
			return err
		}
		t.d.opts.Observe("insert")
		if err := t.copyRows(ctx, c.table, c.columns, rows); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(c.Apply, func(p kinetl.Part) bool { return len(p.DeadLetters) > 0 }) {
		t.d.opts.Observe("dead letters")
		if err := t.copyDeadLetters(ctx, c.table, c.Apply); err != nil {
			return err
		}
	}
	// A constraint that waits for the end of the transaction would fail the COMMIT,
	// which can't tell what for.
	_, err := t.exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE")
	return err
}

// rows is the rows of the admitted parts.
func (c *commit) rows() (out []stretch) {
	for i := range c.Apply {
		if n := c.Apply[i].NumRows(); n > 0 {
			out = append(out, stretch{&c.Apply[i], 0, int(n)})
		}
	}
	return out
}

// lockColumns keeps everybody from changing the table until the transaction ends, and
// reads its columns (R9): bytes written for one type would be stored as another.
func (c *commit) lockColumns(ctx context.Context, t *tx) error {
	_, err := t.exec(ctx, fmt.Sprintf("LOCK TABLE %s IN ROW EXCLUSIVE MODE", t.d.table(tableName(c.table))))
	if code(err) == undefinedTable {
		return &kinetl.SchemaChangedError{Table: c.table, Detail: "the table is gone"}
	}
	if err != nil {
		return fmt.Errorf("lock the table: %w", err)
	}
	r, err := t.relation(ctx, tableName(c.table))
	c.columns = r.columns
	return err
}

// check compares the rows with the table as it is in this transaction.
func (c *commit) check(d *Destination, rows []stretch) error {
	have := schemaOf(c.columns)
	refused := &kinetl.RejectedError{Table: c.table}
	for _, r := range rows {
		if diff := r.part.Schema.Differs(have); diff != "" {
			return &kinetl.SchemaChangedError{Table: c.table, Detail: diff}
		}
		if diff := c.missesValue(d, r.part); diff != "" {
			return &kinetl.SchemaChangedError{Table: c.table, Detail: diff}
		}
		if len(refused.Rows) > 0 && refused.Shard != r.part.Shard {
			continue
		}
		bad, err := misfits(r, c.columns)
		if err != nil {
			return err
		}
		refused.Shard, refused.Rows = r.part.Shard, append(refused.Rows, bad...)
	}
	if len(refused.Rows) > 0 {
		return refused
	}
	return nil
}

// missesValue names a column that somebody made NOT NULL since Prepare and that the
// part leaves null. Prepare will drop the constraint.
func (c *commit) missesValue(d *Destination, p *kinetl.Part) string {
	for _, col := range c.columns {
		if !col.notNull || col.fixed || d.isKept(c.table, col.name) {
			continue
		}
		i := p.Schema.Index(col.Name)
		if i < 0 && !col.hasDefault || i >= 0 && p.Rows.Column(i).NullN() > 0 {
			return fmt.Sprintf("column %q is NOT NULL and rows leave it null", col.Name)
		}
	}
	return ""
}
