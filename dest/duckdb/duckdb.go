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
	"slices"
	"strings"

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
	if err != nil && len(c.apply) > 0 && c.inserting && isDataError(err) {
		err = d.findRefused(ctx, c, err)
	}
	if err != nil {
		return kinetl.CommitReport{}, fmt.Errorf("commit to %s: %w", table, err)
	}
	return kinetl.CommitReport{Fenced: c.fenced}, nil
}

// commit is one call of Commit.
type commit struct {
	table   string
	parts   []kinetl.Part
	columns []column // as the commit's transaction sees them
	apply   []kinetl.Part
	moved   map[kinetl.ShardID]kinetl.Position
	fenced  map[kinetl.ShardID]kinetl.Position

	inserting bool // the failure, if any, is of the INSERT of rows
}

func (c *commit) run(ctx context.Context, t *tx) error {
	stored, err := c.admit(ctx, t)
	if err != nil || len(c.apply) == 0 {
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
	if err := t.insertDeadLetters(ctx, c.table, c.apply); err != nil {
		return err
	}
	t.d.opts.Observe("watermarks")
	for _, shard := range sortedShards(c.moved) {
		if err := t.setMark(ctx, c.table, shard, stored[shard], c.moved[shard]); err != nil {
			return err
		}
	}
	for _, p := range c.apply {
		if p.Gap == nil {
			continue
		}
		if err := t.recordGap(ctx, c.table, kinetl.Move{Shard: p.Shard, From: p.After, To: p.Gap.To}, p.Gap.Reason); err != nil {
			return err
		}
	}
	return nil
}

// admit reads the watermarks and decides by them. A row of another application is
// no row of ours: the shard is fenced, and the next Claim says whose it is (R1).
func (c *commit) admit(ctx context.Context, t *tx) (map[kinetl.ShardID]kinetl.Position, error) {
	seen := map[kinetl.ShardID]bool{}
	var shards []kinetl.ShardID
	for _, p := range c.parts {
		if !seen[p.Shard] {
			seen[p.Shard] = true
			shards = append(shards, p.Shard)
		}
	}
	marks, err := t.marks(ctx, c.table, shards)
	if err != nil {
		return nil, err
	}
	stored := map[kinetl.ShardID]kinetl.Position{}
	for shard, m := range marks {
		if m.application == t.d.opts.Application {
			stored[shard] = m.through
		}
	}
	c.apply, c.moved, c.fenced = kinetl.Admit(stored, c.parts)
	for shard, at := range c.fenced {
		if at == "" {
			c.fenced[shard] = marks[shard].through
		}
	}
	return stored, nil
}

// batches are the rows to insert, once they are known to fit the table as it is in
// this transaction (R9).
func (c *commit) batches(d *Destination) ([]batch, error) {
	have := schemaOf(c.columns)
	var out []batch
	for _, p := range c.apply {
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

func sortedShards(m map[kinetl.ShardID]kinetl.Position) []kinetl.ShardID {
	var out []kinetl.ShardID
	for s := range m {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b kinetl.ShardID) int {
		if c := strings.Compare(a.Stream, b.Stream); c != 0 {
			return c
		}
		if a.Created != b.Created {
			return int(max(-1, min(1, a.Created-b.Created)))
		}
		return strings.Compare(a.Shard, b.Shard)
	})
	return out
}
