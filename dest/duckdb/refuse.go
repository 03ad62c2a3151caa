package duckdb

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/kinetl/kinetl"
)

// maxRefused bounds the search for single bad rows: what is found is reported, and
// the next try of the shard finds the rest.
const maxRefused = 1000

// checkValues finds what only kinetl can tell: numbers that a DECIMAL column would
// round, and values for a generated column.
func checkValues(p kinetl.Part, table string) error {
	refused := &kinetl.RejectedError{Shard: p.Shard, Table: table}
	seen := map[int]bool{}
	for i, c := range p.Schema {
		m := decimalType.FindStringSubmatch(c.Native)
		if m == nil && c.Native != generatedNative {
			continue
		}
		column, ok := p.Rows.Column(i).(*array.String)
		if !ok {
			return fmt.Errorf("column %q: a value for %s comes as text, not as %s", c.Name, c.Native, p.Rows.Column(i).DataType())
		}
		for row := range column.Len() {
			if column.IsNull(row) || seen[row] || m != nil && fitsDecimal(column.Value(row), m[1], m[2]) {
				continue
			}
			seen[row] = true
			refused.Rows = append(refused.Rows, kinetl.RejectedRow{Position: p.RowIDs[row].Position(), Reason: misfit(c.Name, c.Native, column.Value(row)), Column: c.Name})
		}
	}
	if len(refused.Rows) == 0 {
		return nil
	}
	return refused
}

func misfit(name, typ, value string) string {
	const most = 64
	if len(value) > most {
		value = strings.ToValidUTF8(value[:most], "") + "..."
	}
	return fmt.Sprintf("column %q is %s, which does not hold %s", name, typ, value)
}

// fitsDecimal reports whether a DECIMAL(precision, scale) holds the number exactly.
// DuckDB's cast rounds. Text is a number in JSON's grammar.
func fitsDecimal(text, precision, scale string) bool {
	p, _ := strconv.Atoi(precision) // both from a pattern of digits, at most 38
	s, _ := strconv.Atoi(scale)
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	exp := 0
	if exponent != "" {
		var err error
		if exp, err = strconv.Atoi(exponent); err != nil || exp > 1<<20 || exp < -1<<20 {
			return strings.Trim(mantissa, "0.") == ""
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	point := len(whole) + exp // digits before the point
	trimmed := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(trimmed)
	if trimmed == "" {
		return true
	}
	return point <= p-s && len(trimmed)-point <= s
}

// findRefused turns the failure of an INSERT into a *RejectedError that names each
// bad row of the first shard that has any. If none is found, the failure was about
// something else and is returned as it is.
func (d *Destination) findRefused(ctx context.Context, c *commit, cause error) error {
	for _, search := range []func(context.Context, *commit, []kinetl.Part) ([]kinetl.RejectedRow, error){d.askForMisfits, d.bisect} {
		done := map[kinetl.ShardID]bool{}
		for _, p := range c.Apply {
			if done[p.Shard] {
				continue
			}
			done[p.Shard] = true
			var parts []kinetl.Part
			for _, q := range c.Apply {
				if q.Shard == p.Shard && q.NumRows() > 0 {
					parts = append(parts, q)
				}
			}
			rows, err := search(ctx, c, parts)
			if err != nil {
				return fmt.Errorf("look for the rows that were refused (%w): %w", cause, err)
			}
			if len(rows) > 0 {
				return &kinetl.RejectedError{Shard: p.Shard, Table: c.table, Rows: rows}
			}
		}
	}
	return cause
}

// askForMisfits lets the engine name the rows whose values somebody else's columns
// do not take, in one pass.
func (d *Destination) askForMisfits(ctx context.Context, c *commit, parts []kinetl.Part) (out []kinetl.RejectedRow, err error) {
	for _, p := range parts {
		have := schemaOf(c.columns)
		var whens, texts []string
		var used []int
		for i, col := range p.Schema {
			at := have.Index(col.Name)
			if col.Native == "" || c.columns[at].generated {
				continue
			}
			used = append(used, i)
			_, fits := nativeValue(source(i), col.Class, c.columns[at].typ)
			condition := fmt.Sprintf("WHEN %s IS NOT NULL AND NOT coalesce(%s, false) THEN", source(i), fits)
			whens = append(whens, fmt.Sprintf("%s %d", condition, i))
			texts = append(texts, fmt.Sprintf("%s CAST(%s AS VARCHAR)", condition, source(i)))
		}
		if len(whens) == 0 {
			continue
		}
		record := numbered(p.Rows, used)
		err := d.rehearse(ctx, func(t *tx) error {
			if _, err := t.exec(ctx, "CREATE TEMP TABLE _kinetl_misfits (place BIGINT, col INTEGER, val VARCHAR)"); err != nil {
				return err
			}
			statement := func(from string) string {
				return fmt.Sprintf("INSERT INTO temp.main._kinetl_misfits SELECT * FROM (SELECT %s, CASE %s END AS col, CASE %s END FROM %s) AS found(place, col, val) WHERE col IS NOT NULL",
					source(int(p.Rows.NumCols())), strings.Join(whens, " "), strings.Join(texts, " "), from)
			}
			if err := t.feed(ctx, []arrow.RecordBatch{record}, statement); err != nil {
				return err
			}
			return t.query(ctx, func(scan func(...any) error) error {
				var row, col int
				var value string
				if err := scan(&row, &col, &value); err != nil {
					return err
				}
				out = append(out, kinetl.RejectedRow{Position: p.RowIDs[row].Position(), Reason: misfit(p.Schema[col].Name, p.Schema[col].Native, value), Column: p.Schema[col].Name})
				return nil
			}, "SELECT place, col, val FROM temp.main._kinetl_misfits ORDER BY place")
		})
		record.Release()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// numbered is columns of the record, named by place, with each row's place in a last
// column.
func numbered(r arrow.RecordBatch, used []int) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for i := range r.NumRows() {
		b.Append(i)
	}
	places := b.NewInt64Array()
	defer places.Release()
	named := anonymous(r, used)
	defer named.Release()
	fields := append(named.Schema().Fields(), arrow.Field{Name: source(int(r.NumCols())), Type: arrow.PrimitiveTypes.Int64})
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), append(append([]arrow.Array(nil), named.Columns()...), places), r.NumRows())
}

// bisect finds bad rows by inserting ever smaller ranges in transactions that are
// rolled back: constraints of a table (CHECK, UNIQUE, a trigger of the engine's own)
// name no row. A range is tried together with all rows found good so far, since two
// rows may be good each and not both.
func (d *Destination) bisect(ctx context.Context, c *commit, parts []kinetl.Part) ([]kinetl.RejectedRow, error) {
	s := &search{d: d, c: c}
	for _, p := range parts {
		if err := s.split(ctx, p, 0, p.Rows.NumRows()); err != nil {
			return nil, err
		}
	}
	return s.bad, nil
}

type search struct {
	d    *Destination
	c    *commit
	good []batch
	bad  []kinetl.RejectedRow
}

func (s *search) split(ctx context.Context, p kinetl.Part, from, to int64) error {
	if len(s.bad) >= maxRefused {
		return nil
	}
	try := batch{schema: p.Schema, rows: p.Rows.NewSlice(from, to)}
	err := s.d.rehearse(ctx, func(t *tx) error {
		return t.insertRows(ctx, s.c.table, s.c.columns, append(append([]batch(nil), s.good...), try))
	})
	switch {
	case err == nil:
		s.good = append(s.good, try)
		return nil
	case !isDataError(err):
		return err
	case to-from == 1:
		s.bad = append(s.bad, kinetl.RejectedRow{Position: p.RowIDs[from].Position(), Reason: reason(err)})
		return nil
	}
	middle := from + (to-from)/2
	if err := s.split(ctx, p, from, middle); err != nil {
		return err
	}
	return s.split(ctx, p, middle, to)
}

// reason is the engine's words alone.
func reason(err error) string {
	for {
		if line, ok := err.(lineError); ok {
			return line.Error()
		}
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err.Error()
		}
		err = inner.Unwrap()
	}
}
