// Package rowsql finds rows by the records that they are of, and deletes them, in the SQL
// that destinations have in common. What differs is a Dialect.
package rowsql

import (
	"context"
	"fmt"
	"strings"

	"github.com/kinetl/kinetl"
)

// Dialect is what engines write differently. Its functions make expressions of expressions.
type Dialect struct {
	Text     string                           // the type of text
	Bytewise string                           // behind a text, has it compared by bytes
	SHA256   func(text string) string         // hex digits
	List     func(texts []string) string      // of texts, maybe none
	Among    func(text, list string) string   // whether text is in the list
	IsText   func(typ string) bool            // whether a column of that type has text
	Field    func(at, typ, key string) string // a field of a metadata column as text; empty where the type has none
}

// Column is a column of the table.
type Column struct{ Name, Type string }

// Deletion deletes rows of one table, within a transaction.
type Deletion struct {
	Dialect
	Table   string // in errors
	From    string // in statements
	Columns []Column
	Again   []kinetl.Again
	Exec    func(ctx context.Context, statement string, args ...any) (int64, error)
	Query   func(ctx context.Context, each func(scan func(...any) error) error, query string, args ...any) error

	// What a row says of its record, as expressions.
	shard, sequence, id string
	stream, sub         string // may be NULL
}

// Run deletes, and counts by shard. Errors: *kinetl.UndeletableError before anything is
// deleted, or one of Exec and Query.
func (d *Deletion) Run(ctx context.Context) (map[kinetl.ShardID]kinetl.Deleted, error) {
	if err := d.locate(); err != nil {
		return nil, err
	}
	unknown, err := d.count(ctx, fmt.Sprintf("SELECT count(*) FROM %s t WHERE %s IS NULL OR %s IS NULL OR %s IS NULL", d.From, d.shard, d.sequence, d.id))
	if err != nil {
		return nil, err
	}
	if unknown > 0 {
		return nil, d.undeletable("%d rows do not say which record they are of", unknown)
	}
	for _, a := range d.Again {
		if err := d.refuseUndecided(ctx, a); err != nil {
			return nil, err
		}
	}
	return d.delete(ctx)
}

func (d *Deletion) undeletable(format string, args ...any) error {
	return &kinetl.UndeletableError{Table: d.Table, Reason: fmt.Sprintf(format, args...)}
}

// locate finds the columns that tell a row's record. After a change of recordMetadata
// some rows have it in one place and some in another.
func (d *Deletion) locate() error {
	find := func(name, field string) (string, error) {
		var found []string
		for _, c := range d.Columns {
			at := `t."` + strings.ReplaceAll(c.Name, `"`, `""`) + `"`
			switch folded := kinetl.Fold(c.Name); {
			case name != "" && folded == kinetl.Fold(name) && d.IsText(c.Type):
				found = append(found, at)
			case field != "" && folded == kinetl.Fold(kinetl.ObjectColumn):
				if text := d.Field(at, c.Type, field); text != "" {
					found = append(found, text)
				}
			}
		}
		if len(found) == 0 {
			return d.null(), d.undeletable("it has no column %s of text and no %s, as with recordMetadata: none", name, kinetl.ObjectColumn)
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
	d.stream, _ = find(kinetl.StreamColumn, "stream") // NULL where there is none
	d.sub, _ = find("", "subSequenceNumber")          // likewise
	return nil
}

func (d *Deletion) null() string { return "CAST(NULL AS " + d.Text + ")" }

func (d *Deletion) count(ctx context.Context, query string) (n int64, err error) {
	err = d.Query(ctx, func(scan func(...any) error) error { return scan(&n) }, query)
	if err != nil {
		return 0, fmt.Errorf("look at rows: %w", err)
	}
	return n, nil
}

// refuseUndecided: where several streams have loaded a shard of this id, every row must
// be known as one of them. Without kinesisMetadata a row does not say its place in an
// aggregate, and its id can't be told from another stream's.
func (d *Deletion) refuseUndecided(ctx context.Context, a kinetl.Again) error {
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
		d.From, d.values(a), d.after(), strings.Join(known, " OR ")))
	if err != nil {
		return err
	}
	if n > 0 {
		return d.undeletable("%d rows of %s may be of any of the %d streams that have loaded a shard of that id", n, a.Shard.Shard, len(a.Streams))
	}
	return nil
}

func (d *Deletion) delete(ctx context.Context) (map[kinetl.ShardID]kinetl.Deleted, error) {
	from := d.values(d.Again...)
	where := d.after() + fmt.Sprintf(" AND (v.prefix IS NULL OR %s = %s OR coalesce(%s = v.name, false))", d.id, d.idOf("v.prefix"), d.stream)
	out := map[kinetl.ShardID]kinetl.Deleted{}
	var total int64
	err := d.Query(ctx, func(scan func(...any) error) error {
		var item int
		var n int64
		err := scan(&item, &n)
		out[d.Again[item].Shard] = kinetl.Deleted{Rows: n}
		total += n
		return err
	}, fmt.Sprintf("SELECT v.item, count(*) FROM %s t, %s WHERE %s GROUP BY v.item", d.From, from, where))
	if err != nil {
		return nil, fmt.Errorf("count rows: %w", err)
	}
	n, err := d.Exec(ctx, fmt.Sprintf("DELETE FROM %s AS t USING %s WHERE %s", d.From, from, where))
	if err != nil {
		return nil, fmt.Errorf("delete rows: %w", err)
	}
	if n != total {
		return nil, fmt.Errorf("delete rows: %d deleted, %d counted", n, total)
	}
	return out, nil
}

// idOf is the id of a row's record if it is of the shard of that prefix.
func (d *Deletion) idOf(prefix string) string {
	return fmt.Sprintf("left(%s, 32)", d.SHA256(fmt.Sprintf("%s || %s || chr(10) || coalesce(%s, '0')", prefix, d.sequence, d.sub)))
}

// values is shards as a table v, for one pass over the rows however many there are.
func (d *Deletion) values(again ...kinetl.Again) string {
	var items []string
	for i, a := range again {
		var keep []string
		for _, id := range a.Before {
			keep = append(keep, literal(id))
		}
		prefix, name := d.null(), d.null()
		if own := a.Streams[0]; len(a.Streams) > 1 {
			prefix = literal(own.Prefix)
			if own.Name != "" {
				name = literal(own.Name)
			}
		}
		items = append(items, fmt.Sprintf("(%d, %s, %s, %s, %s, %s)", i, literal(a.Shard.Shard), literal(a.Sequence), d.List(keep), prefix, name))
	}
	return fmt.Sprintf("(VALUES %s) v(item, shard, seq, keep, prefix, name)", strings.Join(items, ", "))
}

// after is that a row of t has v's shard id, and comes at or after its record.
func (d *Deletion) after() string {
	return fmt.Sprintf(`%[1]s = v.shard AND (length(%[2]s) > length(v.seq) OR length(%[2]s) = length(v.seq) AND
		(%[2]s > v.seq%[4]s OR %[2]s = v.seq AND NOT %[3]s))`, d.shard, d.sequence, d.Among(d.id, "v.keep"), d.Bytewise)
}

// literal makes a string constant of any text.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
