package duckdb

import (
	"context"
	"fmt"
	"strings"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/rowsql"
)

var _ kinetl.RowDeleter = (*Destination)(nil)

// MoveAndDelete implements kinetl.RowDeleter.
func (d *Destination) MoveAndDelete(ctx context.Context, table string, moves []kinetl.Move, reason string, rehearse bool) (map[kinetl.ShardID]kinetl.Deleted, error) {
	var deleted map[kinetl.ShardID]kinetl.Deleted
	transact := d.transact
	if rehearse {
		transact = d.rehearse
	}
	err := d.ensureState(ctx)
	if err == nil {
		err = transact(ctx, func(t *tx) (err error) {
			rules := t.rules(table, "")
			again, err := rules.Again(ctx, moves)
			if err != nil {
				return err
			}
			d.opts.Observe("watermarks")
			if err := rules.Move(ctx, moves, reason); err != nil {
				return err
			}
			deleted, err = t.deleteAgain(ctx, table, again)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("delete rows and move watermarks of %s: %w", table, err)
	}
	return deleted, nil
}

// deleteAgain deletes rows and dead letters, and counts them by shard.
func (t *tx) deleteAgain(ctx context.Context, table string, again []kinetl.Again) (map[kinetl.ShardID]kinetl.Deleted, error) {
	out := map[kinetl.ShardID]kinetl.Deleted{}
	if len(again) == 0 {
		return out, nil
	}
	columns, err := t.columns(ctx, table)
	if err != nil {
		return nil, err
	}
	if len(columns) > 0 {
		t.d.opts.Observe("delete")
		d := rowsql.Deletion{Dialect: dialect, Table: table, From: t.d.table(table), Again: again, Exec: t.exec, Query: t.query}
		for _, c := range columns {
			d.Columns = append(d.Columns, rowsql.Column{Name: c.Name, Type: c.typ})
		}
		if out, err = d.Run(ctx); err != nil {
			return nil, err
		}
	}
	dead, err := t.columns(ctx, deadLetters(table))
	if err != nil || len(dead) == 0 {
		return out, err
	}
	for _, a := range again {
		n, err := t.exec(ctx, fmt.Sprintf(`DELETE FROM %s WHERE stream = ? AND stream_created = ? AND shard = ?
			AND (length(sequence) > ? OR length(sequence) = ? AND (sequence > ? OR sequence = ? AND sub_sequence >= ?))`, t.d.table(deadLetters(table))),
			a.Shard.Stream, a.Shard.Created, a.Shard.Shard, len(a.Sequence), len(a.Sequence), a.Sequence, a.Sequence, a.Sub)
		if err != nil {
			return nil, fmt.Errorf("delete dead letters of %s: %w", a.Shard, err)
		}
		deleted := out[a.Shard]
		deleted.DeadLetters = n
		out[a.Shard] = deleted
	}
	return out, nil
}

var dialect = rowsql.Dialect{
	Text:   "VARCHAR",
	SHA256: func(text string) string { return "sha256(" + text + ")" },
	List:   func(texts []string) string { return "CAST([" + strings.Join(texts, ", ") + "] AS VARCHAR[])" },
	Among:  func(text, list string) string { return fmt.Sprintf("list_contains(%s, %s)", list, text) },
	IsText: func(typ string) bool { return typ == "VARCHAR" },
	Field: func(at, typ, key string) string {
		switch typ {
		case metadataType():
			return fmt.Sprintf("CAST(struct_extract(%s, '%s') AS VARCHAR)", at, key)
		case "JSON":
			return fmt.Sprintf("json_extract_string(%s, '$.%s')", at, key)
		}
		return ""
	},
}
