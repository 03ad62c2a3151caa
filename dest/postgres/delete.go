package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kinetl/kinetl"
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
		d := deletion{tx: t, table: table, again: again}
		if err := d.locate(r.columns); err != nil {
			return nil, err
		}
		if err := d.run(ctx, out); err != nil {
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

// deletion deletes rows of one table. The fields below again are what a row says of its
// record, as expressions.
type deletion struct {
	*tx
	table string
	again []kinetl.Again

	shard, sequence, id string
	stream, sub         string // may be NULL
}

// locate finds the columns that tell a row's record. After a change of recordMetadata
// some rows have it in one place and some in another.
func (d *deletion) locate(columns []column) error {
	find := func(name, field string) (string, error) {
		var found []string
		for _, c := range columns {
			at := "t." + quote(c.name)
			switch folded := kinetl.Fold(c.Name); {
			case name != "" && folded == kinetl.Fold(name) && (c.typ == "text" || strings.HasPrefix(c.typ, "character varying")):
				found = append(found, at)
			case field != "" && folded == kinetl.Fold(kinetl.ObjectColumn) && (c.typ == "jsonb" || c.typ == "json"):
				found = append(found, fmt.Sprintf("(%s ->> '%s')", at, field))
			}
		}
		if len(found) == 0 {
			return "", &kinetl.UndeletableError{Table: d.table, Reason: fmt.Sprintf("it has no column %s of type text and no %s, as with recordMetadata: none", name, kinetl.ObjectColumn)}
		}
		return "coalesce(" + strings.Join(found, ", ") + ")", nil
	}
	var err error
	if d.shard, err = find(kinetl.ShardColumn, "shardId"); err != nil {
		return err
	}
	if d.sequence, err = find(kinetl.SequenceColumn, "sequenceNumber"); err != nil {
		return err
	}
	if d.id, err = find(kinetl.IDColumn, ""); err != nil {
		return err
	}
	if d.stream, err = find(kinetl.StreamColumn, "stream"); err != nil {
		d.stream = "NULL::text"
	}
	if d.sub, err = find("", "subSequenceNumber"); err != nil {
		d.sub = "NULL::text"
	}
	return nil
}

func (d *deletion) run(ctx context.Context, out map[kinetl.ShardID]kinetl.Deleted) error {
	table := d.d.table(tableName(d.table))
	unknown, err := d.count(ctx, fmt.Sprintf("SELECT count(*) FROM %s t WHERE %s IS NULL OR %s IS NULL OR %s IS NULL", table, d.shard, d.sequence, d.id))
	if err != nil {
		return err
	}
	if unknown > 0 {
		return &kinetl.UndeletableError{Table: d.table, Reason: fmt.Sprintf("%d rows do not say which record they are of", unknown)}
	}
	for _, a := range d.again {
		if err := d.refuseUndecided(ctx, a); err != nil {
			return err
		}
	}
	from := d.values(d.again...)
	where := d.after() + fmt.Sprintf(" AND (v.prefix IS NULL OR %s = %s OR coalesce(%s = v.name, false))", d.id, d.idOf("v.prefix"), d.stream)
	var total int64
	err = d.query(ctx, func(scan func(...any) error) error {
		var item int
		var n int64
		err := scan(&item, &n)
		out[d.again[item].Shard] = kinetl.Deleted{Rows: n}
		total += n
		return err
	}, fmt.Sprintf("SELECT v.item, count(*) FROM %s t, %s WHERE %s GROUP BY v.item", table, from, where))
	if err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	n, err := d.exec(ctx, fmt.Sprintf("DELETE FROM %s AS t USING %s WHERE %s", table, from, where))
	if err != nil {
		return fmt.Errorf("delete rows: %w", err)
	}
	if n != total {
		return fmt.Errorf("delete rows: %d deleted, %d counted", n, total)
	}
	return nil
}

func (d *deletion) count(ctx context.Context, query string) (n int64, err error) {
	err = d.query(ctx, func(scan func(...any) error) error { return scan(&n) }, query)
	if err != nil {
		return 0, fmt.Errorf("look at rows: %w", err)
	}
	return n, nil
}

// refuseUndecided: where several streams have loaded a shard of this id, every row must
// be known as one of them. Without kinesisMetadata a row does not say its place in an
// aggregate, and its id can't be told from another stream's.
func (d *deletion) refuseUndecided(ctx context.Context, a kinetl.Again) error {
	if len(a.Streams) == 1 {
		return nil
	}
	var known []string
	for _, s := range a.Streams {
		known = append(known, fmt.Sprintf("%s = %s", d.id, d.idOf(literal(s.Prefix))))
		if s.Name != "" {
			known = append(known, fmt.Sprintf("%s = %s", d.stream, literal(s.Name)))
		}
	}
	n, err := d.count(ctx, fmt.Sprintf("SELECT count(*) FROM %s t, %s WHERE %s AND NOT coalesce(%s, false)",
		d.d.table(tableName(d.table)), d.values(a), d.after(), strings.Join(known, " OR ")))
	if err != nil {
		return err
	}
	if n > 0 {
		return &kinetl.UndeletableError{Table: d.table, Reason: fmt.Sprintf("%d rows of %s may be of any of the %d streams that have loaded a shard of that id", n, a.Shard.Shard, len(a.Streams))}
	}
	return nil
}

// idOf is the id of a row's record if it is of the shard of that prefix.
func (d *deletion) idOf(prefix string) string {
	return fmt.Sprintf("left(encode(sha256(convert_to(%s || %s || chr(10) || coalesce(%s, '0'), 'UTF8')), 'hex'), 32)", prefix, d.sequence, d.sub)
}

// values is shards as a table v, for one pass over the rows however many there are.
func (d *deletion) values(again ...kinetl.Again) string {
	var items []string
	for i, a := range again {
		var keep []string
		for _, id := range a.Before {
			keep = append(keep, literal(id))
		}
		prefix, name := "NULL::text", "NULL::text"
		if own := a.Streams[0]; len(a.Streams) > 1 {
			prefix = literal(own.Prefix)
			if own.Name != "" {
				name = literal(own.Name)
			}
		}
		items = append(items, fmt.Sprintf("(%d, %s, %s, ARRAY[%s]::text[], %s, %s)", i, literal(a.Shard.Shard), literal(a.Sequence), strings.Join(keep, ", "), prefix, name))
	}
	return fmt.Sprintf("(VALUES %s) v(item, shard, seq, keep, prefix, name)", strings.Join(items, ", "))
}

// after is that a row of t has v's shard id, and comes at or after its record.
func (d *deletion) after() string {
	return fmt.Sprintf(`%[1]s = v.shard AND (length(%[2]s) > length(v.seq) OR length(%[2]s) = length(v.seq) AND
		(%[2]s > v.seq COLLATE "C" OR %[2]s = v.seq AND %[3]s <> ALL (v.keep)))`, d.shard, d.sequence, d.id)
}
