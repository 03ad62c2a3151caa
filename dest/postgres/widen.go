package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/kinetl/kinetl"
)

// doubleText is the name of the function that gives kinetl's text of a double.
const doubleText = "_kinetl_double_text"

// doubleTextBody differs from the cast to text in two ways. The cast goes over to an
// exponent at 1e15, kinetl at 1e16. And where the shortest text of a double lies just
// between it and its neighbour, as 1e+23 does, the cast takes a longer one: the number
// that is one digit shorter, rounded up or down, is tried. Only doubles above 2^53 have
// such texts, which begin with one digit before the point. Of its exponent a candidate
// is an integer, and its text is made from the digits of that.
//
// It calls nothing that a search_path could replace, since pg_catalog comes first.
const doubleTextBody = `
SELECT CASE
	WHEN v = 'NaN' THEN 'nan' WHEN v = 'Infinity' THEN 'inf' WHEN v = '-Infinity' THEN '-inf'
	WHEN v::text LIKE '%e+15' THEN v::text::numeric::text
	WHEN v::text ~ '^-?[0-9][.][0-9]{12,}e[+][0-9]{2}$' THEN coalesce((
		SELECT regexp_replace(rtrim(whole, '0'), '^(-?[0-9])(?=[0-9])', '\1.') || 'e+' || (length(ltrim(whole, '-')) - 1)
		FROM (SELECT split_part(v::text, 'e', 1) AS mantissa, split_part(v::text, 'e', 2) AS exponent) AS parts,
			LATERAL (SELECT trunc(mantissa::numeric, length(split_part(mantissa, '.', 2)) - 1) AS down) AS cut,
			LATERAL (VALUES (down), (down + sign(v)::numeric * ('1e' || (1 - length(split_part(mantissa, '.', 2))))::numeric)) AS tried(candidate),
			LATERAL (SELECT trunc((candidate::text || 'e' || exponent)::numeric)::text AS whole) AS written
		WHERE (candidate::text || 'e' || exponent)::double precision = v LIMIT 1), v::text)
	ELSE v::text END`

// asText is a column's value as kinetl's canonical text (see Conform).
func (p *preparation) asText(c kinetl.Column) string {
	name := quote(p.names[kinetl.Fold(c.Name)])
	if c.Class == kinetl.Double {
		return fmt.Sprintf("%s.%s(%s)", quote(p.d.opts.Schema), doubleText, name)
	}
	return name + "::text"
}

// converted is the expression by which a column's stored values become what the decoder
// would have made of them had it known the wider class from the start. Empty: they are.
func (p *preparation) converted(from kinetl.Column, to kinetl.Class) string {
	name := quote(p.names[kinetl.Fold(from.Name)])
	switch {
	case from.Class == kinetl.Empty && to != kinetl.JSON:
		return "NULL" // {} and [] beside scalars
	case typeOf(from.Class) == typeOf(to):
		return ""
	case to == kinetl.JSON && from.Class == kinetl.String:
		return fmt.Sprintf("to_jsonb(%s)", name)
	case to == kinetl.JSON:
		return p.asText(from) + "::jsonb"
	case typeOf(to) == "text":
		return p.asText(from)
	}
	return fmt.Sprintf("%s::%s", name, typeOf(to))
}

// rewrite is a column whose values are converted.
type rewrite struct {
	column column
	from   kinetl.Class
	action string // of ALTER TABLE
}

// widen gives columns their wider class. Those that only the comment tells apart cost
// nothing. The others are rewritten together, or, if the engine will not, one by one.
func (p *preparation) widen(ctx context.Context, joined kinetl.Schema) error {
	var free []column
	var rewrites []rewrite
	for i, have := range p.schema {
		if joined[i].Class == have.Class {
			continue
		}
		c := column{Column: joined[i], name: p.names[kinetl.Fold(have.Name)]}
		using := p.converted(have, c.Class)
		if using == "" {
			free = append(free, c)
			continue
		}
		rewrites = append(rewrites, rewrite{c, have.Class, fmt.Sprintf("ALTER COLUMN %s TYPE %s USING %s", quote(c.name), typeOf(c.Class), using)})
	}
	if len(free) > 0 {
		p.d.opts.Observe("alter")
		err := p.attempt(ctx, func() error { return p.comment(ctx, free) })
		if !isRefusal(err) && err != nil {
			return err
		}
		if err != nil {
			for _, c := range free {
				p.refused(c, err)
			}
		}
	}
	return p.rewriteAll(ctx, rewrites)
}

func (p *preparation) rewriteAll(ctx context.Context, rewrites []rewrite) error {
	if len(rewrites) == 0 {
		return nil
	}
	for _, r := range rewrites {
		if r.from == kinetl.Double {
			if err := p.createDoubleText(ctx); err != nil {
				return err
			}
			break
		}
	}
	size, err := p.size(ctx)
	if err != nil {
		return err
	}
	if size > p.d.opts.RewriteLimit {
		for _, r := range rewrites {
			p.why[kinetl.Fold(r.column.Name)] = fmt.Sprintf(
				"the table has %s, and to make the column %s rewrites it and locks it meanwhile, which kinetl does by itself up to %s: start kinetl run once with --rewrite, or execute %s",
				inWords(size), r.column.Class, inWords(p.d.opts.RewriteLimit), p.script(r))
		}
		return nil
	}
	err = p.rewrite(ctx, rewrites)
	if !isRefusal(err) || len(rewrites) == 1 {
		return p.settle(rewrites[0], err)
	}
	for _, r := range rewrites {
		if err := p.settle(r, p.rewrite(ctx, []rewrite{r})); err != nil {
			return err
		}
	}
	return nil
}

// settle notes a refusal, and returns any other error.
func (p *preparation) settle(r rewrite, err error) error {
	if isRefusal(err) {
		p.refused(r.column, err)
		return nil
	}
	return err
}

func (p *preparation) refused(c column, err error) {
	p.why[kinetl.Fold(c.Name)] = fmt.Sprintf("PostgreSQL refuses to alter it (%v): drop what depends on the column, a view or an index say, or let this role own the table, and start again", err)
}

// rewrite alters the columns in one go over the table.
func (p *preparation) rewrite(ctx context.Context, rewrites []rewrite) error {
	p.d.opts.Observe("alter")
	var actions []string
	var columns []column
	for _, r := range rewrites {
		actions, columns = append(actions, r.action), append(columns, r.column)
	}
	return p.attempt(ctx, func() error {
		if _, err := p.exec(ctx, fmt.Sprintf("ALTER TABLE %s %s", p.quoted(), strings.Join(actions, ", "))); err != nil {
			return fmt.Errorf("widen columns: %w", err)
		}
		return p.comment(ctx, columns)
	})
}

// script is the statements of a rewrite, for a person to run.
func (p *preparation) script(r rewrite) string {
	return fmt.Sprintf("BEGIN; ALTER TABLE %s %s; %s; COMMIT;", p.quoted(), r.action, p.commentOn(r.column))
}

// createDoubleText makes the function, if it is missing.
func (p *preparation) createDoubleText(ctx context.Context) error {
	if err := p.lock(ctx, "state", p.d.opts.Schema); err != nil {
		return err
	}
	exists := false
	err := p.query(ctx, func(scan func(...any) error) error { return scan(&exists) },
		"SELECT EXISTS (SELECT FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace WHERE n.nspname = $1 AND f.proname = $2)", p.d.opts.Schema, doubleText)
	if err != nil || exists {
		return err
	}
	_, err = p.exec(ctx, fmt.Sprintf("CREATE FUNCTION %s.%s(v double precision) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS %s",
		quote(p.d.opts.Schema), doubleText, literal(doubleTextBody)))
	if err != nil {
		return fmt.Errorf("create function %s: %w", doubleText, err)
	}
	return nil
}

// size is the bytes of the table, its partitions and its long values.
func (p *preparation) size(ctx context.Context) (int64, error) {
	if p.bytes != nil {
		return *p.bytes, nil
	}
	var size int64
	err := p.query(ctx, func(scan func(...any) error) error { return scan(&size) },
		`SELECT pg_table_size($1::regclass) + coalesce((SELECT sum(pg_table_size(relid)) FROM pg_partition_tree($1::regclass) WHERE relid <> $1::regclass), 0)::bigint`, p.quoted())
	if err != nil {
		return 0, fmt.Errorf("measure the table: %w", err)
	}
	p.bytes = &size
	return size, nil
}

// inWords is a number of bytes for people.
func inWords(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", bytes)
}
