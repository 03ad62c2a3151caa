package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kinetl/kinetl"
)

// stretch is consecutive rows of one part.
type stretch struct {
	part     *kinetl.Part
	from, to int
}

// copyRows stores the rows in their order, one COPY for each run of parts with the same
// columns.
func (t *tx) copyRows(ctx context.Context, table string, columns []column, rows []stretch) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && slices.EqualFunc(rows[n].part.Schema, rows[0].part.Schema, isSameColumn) {
			n++
		}
		if err := t.copyRun(ctx, table, columns, rows[:n]); err != nil {
			return fmt.Errorf("copy rows: %w", err)
		}
		rows = rows[n:]
	}
	return nil
}

// isSameColumn looks past why a column is capped.
func isSameColumn(a, b kinetl.Column) bool {
	a.Why, b.Why = "", ""
	return a == b
}

// copyRun names each column and writes each value in the format of the type that the
// catalogue has for it, never by position and never for the server to cast: the bytes
// of a bigint are valid text too (R9).
func (t *tx) copyRun(ctx context.Context, table string, columns []column, rows []stretch) error {
	have := schemaOf(columns)
	var names []string
	batches := make([][]field, len(rows))
	for i, c := range rows[0].part.Schema {
		to := columns[have.Index(c.Name)]
		if to.generated {
			continue // misfits saw that it is null throughout
		}
		names = append(names, quote(to.name))
		for b, r := range rows {
			f, err := newField(r.part.Rows.Column(i), to.kind())
			if err != nil {
				return fmt.Errorf("column %q: %w", c.Name, err)
			}
			batches[b] = append(batches[b], f)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("the rows have no column that takes a value")
	}
	b, row := 0, rows[0].from
	next := func(dst []byte) []byte {
		for row == rows[b].to {
			if b++; b == len(rows) {
				b, row = len(rows)-1, rows[len(rows)-1].to
				return dst
			}
			row = rows[b].from
		}
		row++
		return appendRow(dst, batches[b], row-1)
	}
	return t.copyFrom(ctx, fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT binary)", t.d.table(tableName(table)), strings.Join(names, ", ")), newCopyReader(next))
}
