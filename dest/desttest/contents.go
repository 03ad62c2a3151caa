// Package desttest holds what every kinetl.Destination is tested with: the
// conformance suite (Run), and the reference destination in memory (NewMemory)
// that simulations use.
package desttest

import (
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/kinetl/kinetl"
)

// EndedElsewhere is the reason in _kinetl_gaps when Claim sets End on a parent that
// this table held up to an earlier position and another system finished.
const EndedElsewhere = "finished by another system"

// Contents is what a table and the state beside it hold.
type Contents struct {
	Schema      kinetl.Schema // optional: only Memory gives it
	Rows        []Row         // in the order in which they were stored, where the engine keeps one
	DeadLetters []DeadLetter
	Watermarks  map[kinetl.ShardID]kinetl.Position
	Gaps        []Gap
}

// Row is one row. Shard and Position are known for rows in Memory only.
type Row struct {
	Shard    kinetl.ShardID
	Position kinetl.Position
	Cells    map[string]string // column name -> value as Text renders it; NULL is absent
}

// DeadLetter is a stored dead letter with its shard.
type DeadLetter struct {
	Shard kinetl.ShardID
	kinetl.DeadLetter
}

// Gap is a stored jump of a watermark.
type Gap struct {
	Shard    kinetl.ShardID
	From, To kinetl.Position
	Reason   string
	At       time.Time
}

// RowsOf renders the rows of a part under the names of the table's columns.
func RowsOf(p kinetl.Part, table kinetl.Schema) []Row {
	if p.Rows == nil {
		return nil
	}
	rows := make([]Row, p.Rows.NumRows())
	for i := range rows {
		rows[i] = Row{Shard: p.Shard, Cells: map[string]string{}}
		if i < len(p.RowIDs) {
			rows[i].Position = p.RowIDs[i].Position()
		}
	}
	for c, column := range p.Rows.Columns() {
		name := p.Schema[c].Name
		if at := table.Index(name); at >= 0 {
			name = table[at].Name
		}
		for i := range rows {
			if !column.IsNull(i) {
				rows[i].Cells[name] = Text(column, i)
			}
		}
	}
	return rows
}

// Text renders a value that is not null: numbers in plain or shortest form,
// instants in RFC 3339 with microseconds, a metadata object as JSON.
func Text(a arrow.Array, i int) string {
	switch a := a.(type) {
	case *array.Boolean:
		return strconv.FormatBool(a.Value(i))
	case *array.Int64:
		return strconv.FormatInt(a.Value(i), 10)
	case *array.Float64:
		return kinetl.FormatDouble(a.Value(i))
	case *array.Decimal128:
		return a.Value(i).BigInt().String()
	case *array.String:
		return strings.Clone(a.Value(i)) // the memory of rows is used again
	case *array.Timestamp:
		return time.UnixMicro(int64(a.Value(i))).UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	return a.ValueStr(i)
}

// widen renders the row's values as the columns of the wider schema hold them.
func (r Row) widen(from, to kinetl.Schema) Row {
	cells := map[string]string{}
	for _, c := range from {
		text, ok := r.Cells[c.Name]
		if !ok {
			continue
		}
		wide := to[to.Index(c.Name)].Class
		switch {
		case wide == c.Class:
		case c.Class == kinetl.Empty && wide != kinetl.JSON:
			continue // {} beside scalars is NULL
		case c.Class == kinetl.String && wide == kinetl.JSON:
			text = string(kinetl.QuoteJSON(nil, text))
		}
		cells[c.Name] = text
	}
	r.Cells = cells
	return r
}
