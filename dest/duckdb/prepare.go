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

// refusals are the changes that are not made, found one by one: folded column names
// and why, for a person.
type refusals struct {
	types    map[string]string
	nullable map[string]string
	size     *int64 // of the table in bytes, once somebody asked
}

// refusedError: one change is not made; the rest is tried without it.
type refusedError struct {
	mark map[string]string
	name string
	why  string
}

func (e *refusedError) Error() string { return e.why }

// Prepare implements kinetl.Destination. All of a round's changes are in one
// transaction. A change that the engine refuses ends the round, and the next one
// leaves that column alone, so that an index on one column holds up no other. A
// column on its way to JSON takes a second round; see widen.
func (d *Destination) Prepare(ctx context.Context, table string, want kinetl.Schema, changes kinetl.TypeChanges) (kinetl.Schema, error) {
	if err := d.ensureState(ctx); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", table, err)
	}
	refused := refusals{types: map[string]string{}, nullable: map[string]string{}, size: new(int64)}
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
		case isRefused && refusal.mark[refusal.name] == "":
			refusal.mark[refusal.name] = refusal.why
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
func (d *Destination) keep(table string, nullable map[string]string) {
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
		if why := r.types[kinetl.Fold(schema[i].Name)]; why != "" {
			schema[i].Cap, schema[i].Why = true, why
		}
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
	if _, err := t.exec(ctx, t.d.commentOn(table, column, text)); err != nil {
		return fmt.Errorf("comment on column %q: %w", column, err)
	}
	return nil
}

func (d *Destination) commentOn(table, column, text string) string {
	return fmt.Sprintf("COMMENT ON COLUMN %s.%s IS '%s'", d.table(table), quote(column), text)
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

// finishJSON turns columns of JSON text into columns of JSON, and tells whether
// there were any. A process may have died between the two steps.
func (t *tx) finishJSON(ctx context.Context, table string, columns []column, refused refusals) (found bool, err error) {
	for _, c := range columns {
		name := kinetl.Fold(c.Name)
		if !c.pendingJSON || refused.types[name] != "" {
			continue
		}
		found = true
		t.d.opts.Observe("alter")
		_, err := t.exec(ctx, t.d.makeJSON(table, c.Name))
		if isRefusal(err) {
			return true, &refusedError{refused.types, name, engineRefused(err)}
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

func (d *Destination) makeJSON(table, column string) string {
	return fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE JSON USING %s", d.table(table), quote(column), quote(column))
}

// dropNotNull lets null into the columns that records may leave out: those of
// somebody else that want lacks and that have no default, and those of want.
func (t *tx) dropNotNull(ctx context.Context, table string, columns []column, want kinetl.Schema, refused refusals) error {
	for _, c := range columns {
		name := kinetl.Fold(c.Name)
		if !c.notNull || c.primary || refused.nullable[name] != "" || (c.hasDefault && want.Index(c.Name) < 0) {
			continue
		}
		t.d.opts.Observe("alter")
		_, err := t.exec(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL", t.d.table(table), quote(c.Name)))
		if isRefusal(err) {
			return &refusedError{refused.nullable, name, engineRefused(err)}
		}
		if err != nil {
			return fmt.Errorf("drop NOT NULL of column %q: %w", c.Name, err)
		}
	}
	return nil
}
