package duckdb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kinetl/kinetl"
)

// conflictTries bounds how often Prepare begins again because another transaction
// changed the catalogue first.
const conflictTries = 50

// refusals are the changes that the engine would not make, found one by one.
type refusals struct {
	types    map[string]bool // folded column names
	nullable map[string]bool
}

// refusedError: the engine refused one change; the rest is tried without it.
type refusedError struct {
	mark map[string]bool
	name string
	err  error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// Prepare implements kinetl.Destination. All of a round's changes are in one
// transaction. A change that the engine refuses ends the round, and the next one
// leaves that column alone, so that an index on one column holds up no other.
func (d *Destination) Prepare(ctx context.Context, table string, want kinetl.Schema, changes kinetl.TypeChanges) (kinetl.Schema, error) {
	if err := d.ensureState(ctx); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", table, err)
	}
	refused := refusals{types: map[string]bool{}, nullable: map[string]bool{}}
	for conflicts := 0; ; {
		var schema kinetl.Schema
		err := d.transact(ctx, func(t *tx) (err error) {
			schema, err = t.prepare(ctx, table, want, changes, refused)
			return err
		})
		refusal, isRefused := asRefused(err)
		switch {
		case err == nil:
			d.keep(table, refused.nullable)
			return schema, nil
		case isRefused && !refusal.mark[refusal.name]:
			refusal.mark[refusal.name] = true
		case isConflict(err) && conflicts < conflictTries:
			conflicts++
			if err := wait(ctx, time.Duration(conflicts)*time.Millisecond); err != nil {
				return nil, fmt.Errorf("prepare %s: %w", table, err)
			}
		default:
			return nil, fmt.Errorf("prepare %s: %w", table, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keep remembers which columns stay NOT NULL, lest Commit ask for a Prepare that
// changes nothing, for ever.
func (d *Destination) keep(table string, nullable map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range nullable {
		d.keptNotNil[kinetl.Fold(table)+"\x00"+name] = true
	}
}

func (d *Destination) kept(table, column string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keptNotNil[kinetl.Fold(table)+"\x00"+kinetl.Fold(column)]
}

func (t *tx) prepare(ctx context.Context, table string, want kinetl.Schema, changes kinetl.TypeChanges, refused refusals) (kinetl.Schema, error) {
	columns, err := t.columns(ctx, table)
	if err != nil {
		return nil, err
	}
	have := schemaOf(columns)
	for i := range have {
		have[i].Cap = have[i].Cap || refused.types[kinetl.Fold(have[i].Name)]
	}
	joined := have.Join(creatable(want), changes)

	if err := t.createDeadLetters(ctx, table); err != nil {
		return nil, err
	}
	if len(have) == 0 {
		return joined, t.createTable(ctx, table, joined)
	}
	for i, c := range joined {
		if i >= len(have) {
			err = t.addColumn(ctx, table, c)
		} else if c.Class != have[i].Class {
			err = t.widen(ctx, table, have[i], c, refused)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := t.dropNotNull(ctx, table, columns, want, refused); err != nil {
		return nil, err
	}

	// What counts is what the catalogue says now (R12).
	columns, err = t.columns(ctx, table)
	if err != nil {
		return nil, err
	}
	got := schemaOf(columns)
	for i := range got {
		got[i].Cap = got[i].Cap || refused.types[kinetl.Fold(got[i].Name)]
	}
	if diff := joined.Differs(got); diff != "" {
		return nil, fmt.Errorf("the table is not as it was made: %s", diff)
	}
	return got, nil
}

// creatable is want without the keys that were only ever null, each column as one
// that kinetl makes.
func creatable(want kinetl.Schema) kinetl.Schema {
	var out kinetl.Schema
	for _, c := range want {
		if c.Class != kinetl.Unset {
			out = append(out, kinetl.Column{Name: c.Name, Class: c.Class})
		}
	}
	return out
}

// createTable makes the table. DuckDB has no table without columns; it then comes
// with the first column.
func (t *tx) createTable(ctx context.Context, table string, schema kinetl.Schema) error {
	if len(schema) == 0 {
		return nil
	}
	t.d.opts.Observe("alter")
	parts := make([]string, len(schema))
	for i, c := range schema {
		parts[i] = quote(c.Name) + " " + typeOf(c.Class)
	}
	if _, err := t.exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s)", t.d.table(table), strings.Join(parts, ", "))); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	for _, c := range schema {
		if err := t.comment(ctx, table, c); err != nil {
			return err
		}
	}
	columns, err := t.columns(ctx, table)
	if err != nil {
		return err
	}
	if diff := schema.Differs(schemaOf(columns)); diff != "" {
		return fmt.Errorf("the table is not as it was made: %s", diff)
	}
	return nil
}

func (t *tx) comment(ctx context.Context, table string, c kinetl.Column) error {
	_, err := t.exec(ctx, fmt.Sprintf("COMMENT ON COLUMN %s.%s IS '%s%s'", t.d.table(table), quote(c.Name), classComment, c.Class))
	if err != nil {
		return fmt.Errorf("comment on column %q: %w", c.Name, err)
	}
	return nil
}

func (t *tx) addColumn(ctx context.Context, table string, c kinetl.Column) error {
	t.d.opts.Observe("alter")
	if _, err := t.exec(ctx, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", t.d.table(table), quote(c.Name), typeOf(c.Class))); err != nil {
		return fmt.Errorf("add column %q: %w", c.Name, err)
	}
	return t.comment(ctx, table, c)
}

func (t *tx) widen(ctx context.Context, table string, from, to kinetl.Column, refused refusals) error {
	t.d.opts.Observe("alter")
	if using := conversion(quote(from.Name), from.Class, to.Class); using != "" {
		_, err := t.exec(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE %s USING %s", t.d.table(table), quote(from.Name), typeOf(to.Class), using))
		if isRefusal(err) {
			return &refusedError{refused.types, kinetl.Fold(from.Name), err}
		}
		if err != nil {
			return fmt.Errorf("widen column %q from %s to %s: %w", from.Name, from.Class, to.Class, err)
		}
	}
	return t.comment(ctx, table, to)
}

// conversion is the expression that turns stored values of one class into those of
// a wider one: the values that the decoder would have made had it known the wider
// class from the start. Empty: the stored values stay as they are.
func conversion(col string, from, to kinetl.Class) string {
	switch {
	case from == kinetl.Empty && to != kinetl.JSON && to != kinetl.Text:
		return "NULL" // {} and [] beside scalars
	case to == kinetl.JSON && from == kinetl.String:
		return fmt.Sprintf("to_json(%s)", col)
	case to == kinetl.JSON && from != kinetl.Empty:
		return fmt.Sprintf("CAST(%s AS JSON)", text(col, from))
	case typeOf(from) == typeOf(to):
		return ""
	case typeOf(to) == "VARCHAR":
		return text(col, from)
	}
	return fmt.Sprintf("CAST(%s AS %s)", col, typeOf(to))
}

// text is the value as kinetl writes it: DuckDB prints a double with the fewest
// digits that name it, and with ".0" where it is an integer.
func text(col string, from kinetl.Class) string {
	plain := fmt.Sprintf("CAST(%s AS VARCHAR)", col)
	if from == kinetl.Double {
		return fmt.Sprintf(`regexp_replace(%s, '\.0$', '')`, plain)
	}
	return plain
}

// dropNotNull lets null into the columns that records may leave out: those of
// somebody else that want lacks and that have no default, and those of want.
func (t *tx) dropNotNull(ctx context.Context, table string, columns []column, want kinetl.Schema, refused refusals) error {
	for _, c := range columns {
		name := kinetl.Fold(c.Name)
		if !c.notNull || c.primary || refused.nullable[name] || (c.hasDefault && want.Index(c.Name) < 0) {
			continue
		}
		t.d.opts.Observe("alter")
		_, err := t.exec(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL", t.d.table(table), quote(c.Name)))
		if isRefusal(err) {
			return &refusedError{refused.nullable, name, err}
		}
		if err != nil {
			return fmt.Errorf("drop NOT NULL of column %q: %w", c.Name, err)
		}
	}
	return nil
}
