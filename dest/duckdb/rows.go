package duckdb

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/kinetl/kinetl"
)

// batch is rows with the columns that they are meant for.
type batch struct {
	schema kinetl.Schema
	rows   arrow.RecordBatch
}

// insertRows stores batches in their order, one INSERT for each run of batches with
// the same columns.
func (t *tx) insertRows(ctx context.Context, table string, columns []column, batches []batch) error {
	for len(batches) > 0 {
		n := 1
		for n < len(batches) && slices.EqualFunc(batches[n].schema, batches[0].schema, isSameColumn) {
			n++
		}
		if err := t.insertRun(ctx, table, columns, batches[:n]); err != nil {
			return fmt.Errorf("insert rows: %w", err)
		}
		batches = batches[n:]
	}
	return nil
}

// isSameColumn looks past why a column is capped.
func isSameColumn(a, b kinetl.Column) bool {
	a.Why, b.Why = "", ""
	return a == b
}

// insertRun names each column and casts each value to the type that the catalogue
// has for it, never by position and never implicitly: an implicit cast stores 2.5
// in a BIGINT as 2 (R9).
func (t *tx) insertRun(ctx context.Context, table string, columns []column, batches []batch) error {
	have := schemaOf(columns)
	var names, values []string
	var used []int
	for i, c := range batches[0].schema {
		at := have.Index(c.Name)
		if columns[at].generated {
			continue // checkValues saw that it is null throughout
		}
		used = append(used, i)
		names = append(names, quote(columns[at].Name))
		values = append(values, insertValue(source(i), c, columns[at].typ))
	}
	if len(names) == 0 { // nothing but generated columns: a row of defaults for each
		return fmt.Errorf("table %s has no column that takes a value", table)
	}
	records := make([]arrow.RecordBatch, len(batches))
	for i, b := range batches {
		records[i] = anonymous(b.rows, used)
		defer records[i].Release()
	}
	return t.feed(ctx, records, func(from string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s",
			t.d.table(table), strings.Join(names, ", "), strings.Join(values, ", "), from)
	})
}

// source is the name under which a statement finds column i of what it is fed.
func source(i int) string { return fmt.Sprintf("c%d", i) }

// anonymous is the columns of the record that a statement uses, named by their place
// in it, so that no name of the user's meets DuckDB's rules for the columns of a view.
// The others must not be there: DuckDB leaves the columns of a view on Arrow data that
// a statement does not use to whoever hands the data over, who in the driver hands
// over all of them, and then takes one column for another (seen in DuckDB 1.5.6: the
// process crashed).
func anonymous(r arrow.RecordBatch, used []int) arrow.RecordBatch {
	fields := make([]arrow.Field, len(used))
	columns := make([]arrow.Array, len(used))
	for n, i := range used {
		fields[n] = arrow.Field{Name: source(i), Type: r.Column(i).DataType(), Nullable: true}
		columns[n] = r.Column(i)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, r.NumRows())
}

// insertValue is the expression that stores a value of class c in a column of type
// typ. In a column of kinetl's own the cast changes nothing. In somebody else's a
// value that it would change, or that it can't convert, fails the statement.
func insertValue(src string, c kinetl.Column, typ string) string {
	if c.Native == "" {
		return fmt.Sprintf("CAST(%s AS %s)", src, typ)
	}
	value, fits := nativeValue(src, c.Class, typ)
	return fmt.Sprintf("CASE WHEN %s IS NULL THEN NULL WHEN %s THEN %s ELSE error('a value does not fit') END", src, fits, value)
}

// nativeValue is the conversion to a type of somebody else's column, and the
// condition under which it keeps the value. The condition may be NULL for false.
func nativeValue(src string, class kinetl.Class, typ string) (value, fits string) {
	value = fmt.Sprintf("TRY_CAST(%s AS %s)", src, typ)
	exact := ""
	switch {
	case class == kinetl.Double: // FLOAT
		exact = fmt.Sprintf("CAST(%s AS DOUBLE) = %s", value, src)
	case class != kinetl.Text: // integers fit or fail; decimals are looked at by checkValues
	case typ == "BLOB": // a cast reads \x41 as an escape
		return fmt.Sprintf("encode(%s)", src), "true"
	case isNested(typ):
		value = fmt.Sprintf("TRY_CAST(TRY_CAST(%s AS JSON) AS %s)", src, typ)
		exact = fmt.Sprintf("json_contains(%s, %s)", plainJSON(fmt.Sprintf("to_json(%s)", value)), plainJSON(fmt.Sprintf("TRY_CAST(%s AS JSON)", src)))
	case typ == "DATE": // a cast cuts the time of day off
		exact = fmt.Sprintf("CAST(%s AS TIMESTAMP) = TRY_CAST(%s AS TIMESTAMP)", value, src)
	case strings.HasPrefix(typ, "TIME"):
		exact = keepsTime(src, value, typ)
	}
	if exact == "" {
		return value, value + " IS NOT NULL"
	}
	return value, exact
}

// keepsTime: no digit of a second is cut off, and an offset is not dropped. A
// TIMESTAMP without time zone takes an instant only if it is written in UTC.
func keepsTime(src, value, typ string) string {
	digits := 6
	switch typ {
	case "TIMESTAMP_S":
		digits = 0
	case "TIMESTAMP_MS":
		digits = 3
	case "TIMESTAMP_NS", "TIME_NS":
		digits = 9
	}
	keeps := fmt.Sprintf(`%s IS NOT NULL AND NOT regexp_matches(%s, '\.[0-9]{%d}[0-9]*[1-9]')`, value, src, digits)
	if strings.HasPrefix(typ, "TIMESTAMP") && typ != "TIMESTAMP WITH TIME ZONE" {
		keeps += fmt.Sprintf(" AND TRY_CAST(%s AS TIMESTAMPTZ) = CAST(CAST(%s AS TIMESTAMP) AS TIMESTAMPTZ)", src, value)
	}
	return keeps
}

func isNested(typ string) bool {
	return strings.HasSuffix(typ, "]") || strings.HasPrefix(typ, "STRUCT(") || strings.HasPrefix(typ, "MAP(")
}

// plainJSON writes 1.0 as 1 on both sides of a comparison, since a DOUBLE inside a
// nested type prints the one where the record had the other.
func plainJSON(json string) string {
	return fmt.Sprintf(`regexp_replace(CAST(%s AS VARCHAR), '([0-9])\.0+([,\]}]|$)', '\1\2', 'g')`, json)
}
