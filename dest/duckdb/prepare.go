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
// leaves that column alone, so that an index on one column holds up no other. A
// column on its way to JSON takes a second round; see widen.
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
		case err == nil && schema != nil:
			d.keep(table, refused.nullable)
			return schema, nil
		case err == nil: // another round
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

// mark caps the columns whose change was refused.
func (r refusals) mark(schema kinetl.Schema) kinetl.Schema {
	for i := range schema {
		schema[i].Cap = schema[i].Cap || r.types[kinetl.Fold(schema[i].Name)]
	}
	return schema
}

// prepare is one round. A nil schema asks for another.
func (t *tx) prepare(ctx context.Context, table string, want kinetl.Schema, changes kinetl.TypeChanges, refused refusals) (kinetl.Schema, error) {
	columns, err := t.columns(ctx, table)
	if err != nil {
		return nil, err
	}
	if again, err := t.finishJSON(ctx, table, columns, refused); again || err != nil {
		return nil, err
	}
	have := refused.mark(schemaOf(columns))
	joined := have.Join(creatable(want), changes)

	if err := t.createDeadLetters(ctx, table); err != nil {
		return nil, err
	}
	if len(have) == 0 {
		return append(kinetl.Schema{}, joined...), t.createTable(ctx, table, joined)
	}
	if err := t.dropNotNull(ctx, table, columns, want, refused); err != nil {
		return nil, err
	}
	again, err := t.alter(ctx, table, have, joined, refused)
	if again || err != nil {
		return nil, err
	}

	// What counts is what the catalogue says now (R12).
	columns, err = t.columns(ctx, table)
	if err != nil {
		return nil, err
	}
	got := refused.mark(schemaOf(columns))
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
		if err := t.comment(ctx, table, c.Name, classComment+c.Class.String()); err != nil {
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

func (t *tx) comment(ctx context.Context, table, column, text string) error {
	_, err := t.exec(ctx, fmt.Sprintf("COMMENT ON COLUMN %s.%s IS '%s'", t.d.table(table), quote(column), text))
	if err != nil {
		return fmt.Errorf("comment on column %q: %w", column, err)
	}
	return nil
}

func (t *tx) addColumn(ctx context.Context, table string, c kinetl.Column) error {
	t.d.opts.Observe("alter")
	if _, err := t.exec(ctx, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", t.d.table(table), quote(c.Name), typeOf(c.Class))); err != nil {
		return fmt.Errorf("add column %q: %w", c.Name, err)
	}
	return t.comment(ctx, table, c.Name, classComment+c.Class.String())
}

// alter adds and widens columns until have is joined, and tells whether columns on
// their way to JSON want another round. UPDATEs come last: DuckDB commits no ALTER
// of a table that the same transaction has updated before it.
func (t *tx) alter(ctx context.Context, table string, have, joined kinetl.Schema, refused refusals) (again bool, err error) {
	var updates []string
	for i, c := range joined {
		switch {
		case i >= len(have):
			err = t.addColumn(ctx, table, c)
		case c.Class != have[i].Class:
			var update string
			update, err = t.widen(ctx, table, have[i], c, refused)
			updates = append(updates, update)
			again = again || c.Class == kinetl.JSON && have[i].Class != kinetl.Empty
		}
		if err != nil {
			return false, err
		}
	}
	for _, update := range updates {
		if update == "" {
			continue
		}
		if _, err := t.exec(ctx, update); err != nil {
			return false, fmt.Errorf("convert values: %w", err)
		}
	}
	return again, nil
}

// widen changes a column's type and comment, and returns the UPDATE that its stored
// values need besides.
//
// An ALTER must not call a function nor name the type JSON in its expression. The
// log of a database that was not closed holds the ALTER as an expression, and
// replaying it at the next start fails to look functions and JSON up: the database
// could never be opened again (seen in DuckDB 1.5.6). A column reference, a cast to
// a built-in type and NULL are safe, and so are UPDATEs, which are logged as values.
// A column on its way to JSON therefore becomes text that is JSON in this
// transaction, and JSON in the next; its comment says so in between.
func (t *tx) widen(ctx context.Context, table string, from, to kinetl.Column, refused refusals) (update string, err error) {
	t.d.opts.Observe("alter")
	col, typ := quote(from.Name), typeOf(to.Class)
	using := fmt.Sprintf("CAST(%s AS %s)", col, typ)
	comment := classComment + to.Class.String()
	switch {
	case from.Class == kinetl.Empty && to.Class == kinetl.JSON:
		using = "" // {} and [] keep their text
	case from.Class == kinetl.Empty:
		using = fmt.Sprintf("CAST(NULL AS %s)", typ) // {} and [] beside scalars
	case to.Class == kinetl.JSON:
		// Also where it is text already: that the engine lets the type change must
		// be known before values are quoted.
		typ, using = "VARCHAR", fmt.Sprintf("CAST(%s AS VARCHAR)", col)
		comment = jsonComment
	case typeOf(from.Class) == typ:
		using = ""
	}
	if using != "" {
		_, err := t.exec(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE %s USING %s", t.d.table(table), col, typ, using))
		if isRefusal(err) {
			return "", &refusedError{refused.types, kinetl.Fold(from.Name), err}
		}
		if err != nil {
			return "", fmt.Errorf("widen column %q from %s to %s: %w", from.Name, from.Class, to.Class, err)
		}
	}
	if value := asText(col, from.Class, to.Class); value != "" && typ == "VARCHAR" {
		update = fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s IS NOT NULL", t.d.table(table), col, value, col)
	}
	return update, t.comment(ctx, table, to.Name, comment)
}

// asText is what becomes of text that was cast from a value, to be what the decoder
// would have made of the value had it known the wider class from the start. DuckDB
// prints a double with the fewest digits that name it, and with ".0" where it is an
// integer. Empty: nothing.
func asText(col string, from, to kinetl.Class) string {
	switch {
	case from == kinetl.Double:
		return fmt.Sprintf(`regexp_replace(%s, '\.0$', '')`, col)
	case from == kinetl.String && to == kinetl.JSON:
		return fmt.Sprintf("CAST(to_json(%s) AS VARCHAR)", col)
	}
	return ""
}

// finishJSON turns columns of JSON text into columns of JSON, and tells whether
// there were any. A process may have died between the two steps.
func (t *tx) finishJSON(ctx context.Context, table string, columns []column, refused refusals) (found bool, err error) {
	for _, c := range columns {
		name := kinetl.Fold(c.Name)
		if !c.pendingJSON || refused.types[name] {
			continue
		}
		found = true
		t.d.opts.Observe("alter")
		_, err := t.exec(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE JSON USING %s", t.d.table(table), quote(c.Name), quote(c.Name)))
		if isRefusal(err) {
			return true, &refusedError{refused.types, name, err}
		}
		if err != nil {
			return true, fmt.Errorf("make column %q JSON: %w", c.Name, err)
		}
		if err := t.comment(ctx, table, c.Name, classComment+kinetl.JSON.String()); err != nil {
			return true, err
		}
	}
	return found, nil
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
