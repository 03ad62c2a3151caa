package postgres

import (
	"context"
	"fmt"
	"strconv"
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
			// Unlike in Commit watermarks come first: a worker that is reading the shards
			// would move them while rows are being deleted, again and again. It waits,
			// and is fenced.
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
	name := tableName(table)
	r, err := t.relation(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.oid != 0 {
		t.d.opts.Observe("delete")
		// The columns that are read below must be those that the statements meet.
		if _, err := t.exec(ctx, fmt.Sprintf("LOCK TABLE %s IN ROW EXCLUSIVE MODE", t.d.table(name))); err != nil {
			return nil, fmt.Errorf("lock the table: %w", err)
		}
		if r, err = t.relation(ctx, name); err != nil {
			return nil, err
		}
		d := rowsql.Deletion{Dialect: dialect, Table: table, From: t.d.table(name), Again: again, Exec: t.exec, Query: t.query}
		for _, c := range r.columns {
			d.Columns = append(d.Columns, rowsql.Column{Name: c.name, Type: c.typ})
		}
		if out, err = d.Run(ctx); err != nil {
			return nil, err
		}
	}
	dead, err := t.relation(ctx, deadLetters(table))
	if err != nil || dead.oid == 0 {
		return out, err
	}
	for _, a := range again {
		n, err := t.exec(ctx, fmt.Sprintf(`DELETE FROM %s WHERE stream = $1 AND stream_created = $2 AND shard = $3
			AND (length(sequence) > $4 OR length(sequence) = $4 AND (sequence COLLATE "C" > $5 OR sequence = $5 AND sub_sequence >= $6::numeric))`, t.d.table(deadLetters(table))),
			a.Shard.Stream, a.Shard.Created, a.Shard.Shard, len(a.Sequence), a.Sequence, strconv.FormatUint(a.Sub, 10))
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
	Text:     "text",
	Bytewise: ` COLLATE "C"`,
	SHA256:   func(text string) string { return "encode(sha256(convert_to(" + text + ", 'UTF8')), 'hex')" },
	List:     func(texts []string) string { return "ARRAY[" + strings.Join(texts, ", ") + "]::text[]" },
	Among:    func(text, list string) string { return fmt.Sprintf("(%s = ANY (%s))", text, list) },
	IsText:   func(typ string) bool { return typ == "text" || strings.HasPrefix(typ, "character varying") },
	Field: func(at, typ, key string) string {
		if typ == "jsonb" || typ == "json" {
			return fmt.Sprintf("(%s ->> '%s')", at, key)
		}
		return ""
	},
}
