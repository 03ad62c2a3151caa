package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kinetl/kinetl"
)

// maxColumns is PostgreSQL's limit (MaxHeapAttributeNumber). Columns that were dropped
// count.
const maxColumns = 1600

// Prepare implements kinetl.Destination. All changes are in one transaction, in which
// other workers wait at an advisory lock (R12). A change that the engine refuses is
// taken back to a savepoint, so that a view on one column holds up no other.
//
// A column that can't be added at all comes back with the class Unset: nothing fits
// it, and its records are dead letters.
func (d *Destination) Prepare(ctx context.Context, table string, want kinetl.Schema, changes kinetl.TypeChanges) (kinetl.Schema, error) {
	var schema kinetl.Schema
	err := d.ensureState(ctx)
	if err == nil {
		err = d.transact(ctx, func(t *tx) (err error) {
			p := &preparation{tx: t, table: table, why: map[string]string{}, kept: map[string]bool{}}
			schema, err = p.run(ctx, creatable(want), changes)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", table, err)
	}
	return schema, nil
}

// preparation is one try of one call of Prepare.
type preparation struct {
	*tx
	table  string
	schema kinetl.Schema     // as the table has it
	names  map[string]string // a folded column's name in the catalogue
	why    map[string]string // a folded column that is not changed, or not added, and why
	kept   map[string]bool   // columns that stay NOT NULL
	bytes  *int64            // size of the table, once somebody asked
}

func (p *preparation) run(ctx context.Context, want kinetl.Schema, changes kinetl.TypeChanges) (kinetl.Schema, error) {
	if err := p.lock(ctx, "table", p.d.opts.Schema, tableName(p.table)); err != nil {
		return nil, err
	}
	r, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.createDeadLetters(ctx, p.table); err != nil {
		return nil, err
	}
	joined := p.schema.Join(want, changes)
	if r.oid == 0 {
		if err := p.create(ctx, joined); err != nil {
			return nil, err
		}
	} else {
		if err := p.dropNotNull(ctx, r.columns, want); err != nil {
			return nil, err
		}
		if err := p.add(ctx, r, joined[len(p.schema):]); err != nil {
			return nil, err
		}
		if err := p.widen(ctx, joined[:len(p.schema)]); err != nil {
			return nil, err
		}
	}
	// What counts is what the catalogue says now (R12).
	if _, err := p.look(ctx); err != nil {
		return nil, err
	}
	return p.result(joined)
}

// look reads the catalogue.
func (p *preparation) look(ctx context.Context) (relation, error) {
	r, err := p.relation(ctx, tableName(p.table))
	if err != nil {
		return r, err
	}
	if r.oid != 0 && r.kind != "r" && r.kind != "p" {
		return r, errors.New("it is a view, or something else that is no table: name another table")
	}
	p.schema, p.names = schemaOf(r.columns), map[string]string{}
	for _, c := range r.columns {
		if i := p.schema.Index(c.Name); p.schema[i].Name == c.Name { // somebody may have made "A" and "a": the first is meant
			p.names[kinetl.Fold(c.Name)] = c.name
		}
	}
	return r, nil
}

// result is the schema in force: what the catalogue says, the caps that were met, and
// the columns that could not be added.
func (p *preparation) result(joined kinetl.Schema) (kinetl.Schema, error) {
	got := append(kinetl.Schema{}, p.schema...)
	for n, want := range joined {
		why := p.why[kinetl.Fold(want.Name)]
		i := got.Index(want.Name)
		switch {
		case joined.Index(want.Name) != n: // somebody's second spelling of another
		case i < 0 && why != "":
			got = append(got, kinetl.Column{Name: want.Name, Cap: true, Why: why})
		case i >= 0 && why != "":
			got[i].Cap, got[i].Why = true, why
		default:
			if diff := (kinetl.Schema{want}).Differs(got); diff != "" {
				return nil, fmt.Errorf("the table is not as it was made: %s", diff)
			}
		}
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

func (p *preparation) quoted() string { return p.d.table(tableName(p.table)) }

// create makes the table.
func (p *preparation) create(ctx context.Context, schema kinetl.Schema) error {
	p.d.opts.Observe("alter")
	columns := p.named(schema[:p.room(schema, maxColumns)], nil)
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = quote(c.name) + " " + typeOf(c.Class)
	}
	if _, err := p.exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s)", p.quoted(), strings.Join(parts, ", "))); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	return p.comment(ctx, columns)
}

// room is how many of the new columns the table takes. The rest has a reason.
func (p *preparation) room(added kinetl.Schema, free int) int {
	n := min(len(added), max(free, 0))
	for _, c := range added[n:] {
		p.why[kinetl.Fold(c.Name)] = fmt.Sprintf("the table has as many columns as PostgreSQL lets a table have, %d (dropped ones count): have producers nest the field in another one, or make a table anew", maxColumns)
	}
	return n
}

// named chooses the names in the catalogue of columns that are made anew.
func (p *preparation) named(added kinetl.Schema, have []column) (out []column) {
	taken := map[string]bool{}
	for _, c := range have {
		taken[c.name] = true
	}
	for _, c := range added {
		name := columnName(c.Name, taken)
		if name == folded(c.Name) {
			c.Name = name
		}
		out = append(out, column{Column: c, name: name})
	}
	return out
}

// comment notes the columns' classes.
func (p *preparation) comment(ctx context.Context, columns []column) error {
	var statements []string
	for _, c := range columns {
		statements = append(statements, p.commentOn(c))
	}
	if len(statements) == 0 {
		return nil
	}
	if _, err := p.exec(ctx, strings.Join(statements, "; ")); err != nil {
		return fmt.Errorf("comment on columns: %w", err)
	}
	return nil
}

func (p *preparation) commentOn(c column) string {
	return fmt.Sprintf("COMMENT ON COLUMN %s.%s IS %s", p.quoted(), quote(c.name), literal(c.comment()))
}

// add adds columns, all or none.
func (p *preparation) add(ctx context.Context, r relation, added kinetl.Schema) error {
	added = added[:p.room(added, maxColumns-r.used)]
	if len(added) == 0 {
		return nil
	}
	p.d.opts.Observe("alter")
	columns := p.named(added, r.columns)
	var parts []string
	for _, c := range columns {
		parts = append(parts, fmt.Sprintf("ADD COLUMN %s %s", quote(c.name), typeOf(c.Class)))
	}
	err := p.attempt(ctx, func() error {
		if _, err := p.exec(ctx, fmt.Sprintf("ALTER TABLE %s %s", p.quoted(), strings.Join(parts, ", "))); err != nil {
			return fmt.Errorf("add columns: %w", err)
		}
		return p.comment(ctx, columns)
	})
	if !isRefusal(err) {
		return err
	}
	for _, c := range added {
		p.why[kinetl.Fold(c.Name)] = fmt.Sprintf("PostgreSQL refuses to add it (%v): let this role own the table, or add the column yourself, and start again", err)
	}
	return nil
}

// dropNotNull lets null into the columns that records may leave out: those of
// somebody else that want lacks and that have no default, and those of want.
func (p *preparation) dropNotNull(ctx context.Context, columns []column, want kinetl.Schema) error {
	for _, c := range columns {
		if !c.notNull || c.fixed || p.d.isKept(p.table, c.name) || c.hasDefault && want.Index(c.Name) < 0 {
			continue
		}
		p.d.opts.Observe("alter")
		err := p.attempt(ctx, func() error {
			_, err := p.exec(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL", p.quoted(), quote(c.name)))
			return err
		})
		switch {
		case isRefusal(err):
			p.d.keep(p.table, c.name)
		case err != nil:
			return fmt.Errorf("drop NOT NULL of column %q: %w", c.Name, err)
		}
	}
	return nil
}

// keep remembers that a column stays NOT NULL, lest Commit ask for a Prepare that
// changes nothing, for ever.
func (d *Destination) keep(table, column string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept[tableName(table)+"\x00"+column] = true
}

func (d *Destination) isKept(table, column string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept[tableName(table)+"\x00"+column]
}
