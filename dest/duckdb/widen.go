package duckdb

import (
	"context"
	"fmt"
	"strings"

	"github.com/kinetl/kinetl"
)

// conversion is the statements by which a column gets a wider class.
//
// An ALTER must not call a function nor name the type JSON in its expression. The
// log of a database that was not closed holds the ALTER as an expression, and
// replaying it at the next start fails to look functions and JSON up: the database
// could never be opened again (seen in DuckDB 1.5.6). A column reference, a cast to
// a built-in type and NULL are safe, and so are UPDATEs, which are logged as values.
// A column on its way to JSON therefore becomes text that is JSON in one
// transaction, and JSON in the next; its comment says so in between.
type conversion struct {
	alter   string // rewrites the column; empty: its type stays
	comment string
	update  string // comes last in the transaction, and may be empty
	finish  bool   // another transaction makes the column JSON
}

func (d *Destination) conversion(table string, from, to kinetl.Column) conversion {
	col, typ := quote(from.Name), typeOf(to.Class)
	using := fmt.Sprintf("CAST(%s AS %s)", col, typ)
	comment, finish := classComment+to.Class.String(), false
	switch {
	case from.Class == kinetl.Empty && to.Class == kinetl.JSON:
		using = "" // {} and [] keep their text
	case from.Class == kinetl.Empty:
		using = fmt.Sprintf("CAST(NULL AS %s)", typ) // {} and [] beside scalars
	case to.Class == kinetl.JSON:
		// Also where it is text already: that the engine lets the type change must
		// be known before values are quoted.
		typ, using = "VARCHAR", fmt.Sprintf("CAST(%s AS VARCHAR)", col)
		comment, finish = jsonComment, true
	case typeOf(from.Class) == typ:
		using = ""
	}
	c := conversion{comment: d.commentOn(table, to.Name, comment), finish: finish}
	if using != "" {
		c.alter = fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE %s USING %s", d.table(table), col, typ, using)
	}
	if value := asText(col, from.Class, to.Class); value != "" && typ == "VARCHAR" {
		c.update = fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s IS NOT NULL", d.table(table), col, value, col)
	}
	return c
}

// script is all statements of the conversion, for a person to run.
func (d *Destination) script(table string, from, to kinetl.Column) string {
	c := d.conversion(table, from, to)
	statements := []string{"BEGIN", c.alter, c.comment}
	if c.update != "" {
		statements = append(statements, c.update)
	}
	statements = append(statements, "COMMIT")
	if c.finish {
		statements = append(statements, "BEGIN", d.makeJSON(table, to.Name), d.commentOn(table, to.Name, classComment+kinetl.JSON.String()), "COMMIT")
	}
	return strings.Join(statements, "; ") + ";"
}

// widen changes a column's type and comment, and returns the UPDATE that its stored
// values need besides.
func (t *tx) widen(ctx context.Context, table string, from, to kinetl.Column, refused refusals) (update string, err error) {
	t.d.opts.Observe("alter")
	c := t.d.conversion(table, from, to)
	if c.alter != "" {
		size, err := t.size(ctx, table, refused)
		if err != nil {
			return "", err
		}
		if size > t.d.opts.RewriteLimit {
			return "", &refusedError{refused.types, kinetl.Fold(from.Name), fmt.Sprintf(
				"the table has %s, and to make the column %s rewrites it, which kinetl does by itself up to %s: start kinetl run once with --rewrite, or stop it and execute %s",
				inWords(size), to.Class, inWords(t.d.opts.RewriteLimit), t.d.script(table, from, to))}
		}
		_, err = t.exec(ctx, c.alter)
		if isRefusal(err) {
			return "", &refusedError{refused.types, kinetl.Fold(from.Name), engineRefused(err)}
		}
		if err != nil {
			return "", fmt.Errorf("widen column %q from %s to %s: %w", from.Name, from.Class, to.Class, err)
		}
	}
	if _, err := t.exec(ctx, c.comment); err != nil {
		return "", fmt.Errorf("comment on column %q: %w", to.Name, err)
	}
	return c.update, nil
}

func engineRefused(err error) string {
	return fmt.Sprintf("DuckDB refuses to alter it (%v): drop what depends on the column, an index say, and start again", err)
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

// size is the bytes that the table takes in the file, as of its last checkpoint. The
// whole file is asked for first, which costs nothing; the table's own blocks are
// looked for only if the file is over the limit.
func (t *tx) size(ctx context.Context, table string, refused refusals) (int64, error) {
	if *refused.size > 0 {
		return *refused.size, nil
	}
	var block, used int64
	err := t.query(ctx, func(scan func(...any) error) error { return scan(&block, &used) },
		"SELECT block_size, used_blocks FROM pragma_database_size() WHERE database_name = current_database()")
	// The function below takes the name as text, in which it knows no doubled quotes.
	if err == nil && block*used > t.d.opts.RewriteLimit && !strings.Contains(t.d.catalog+t.d.opts.Namespace+table, `"`) {
		err = t.query(ctx, func(scan func(...any) error) error { return scan(&used) },
			`SELECT count(DISTINCT block) FROM (
				SELECT block_id AS block FROM pragma_storage_info(?) WHERE block_id >= 0
				UNION ALL SELECT unnest(additional_block_ids) FROM pragma_storage_info(?))`,
			t.d.table(table), t.d.table(table))
	}
	if err != nil {
		return 0, fmt.Errorf("measure table %s: %w", table, err)
	}
	*refused.size = block * used
	return *refused.size, nil
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
