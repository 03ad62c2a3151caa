package kinetl

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// sealed is a batch in the making.
type sealed struct {
	schema Schema
	fields []arrow.Field
	arrays []arrow.Array
}

// add takes over the array.
func (s *sealed) add(c Column, values arrow.Array) {
	s.schema = append(s.schema, c)
	s.fields = append(s.fields, arrow.Field{Name: c.Name, Type: values.DataType(), Nullable: true})
	s.arrays = append(s.arrays, values)
}

func (s *sealed) batch(rows int) arrow.RecordBatch {
	batch := array.NewRecordBatch(arrow.NewSchema(s.fields, nil), s.arrays, int64(rows))
	s.release()
	return batch
}

func (s *sealed) release() {
	for _, a := range s.arrays {
		a.Release()
	}
}

// seal hands the columns over: the table's in its order, new ones in the order in
// which they came, new metadata columns last.
func (b *Builder) seal() *sealed {
	meta := make(map[int]*originColumn, len(b.origin.columns))
	own := len(b.schema)
	for i := range b.origin.columns {
		m := &b.origin.columns[i]
		meta[m.col] = m
		own = max(own, m.col+1)
	}
	n := len(b.cols)
	out := &sealed{schema: make(Schema, 0, n), fields: make([]arrow.Field, 0, n), arrays: make([]arrow.Array, 0, n)}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			c := &b.cols[i]
			if m, ok := meta[i]; ok {
				out.add(c.Column, m.array(&c.values, b.row))
			} else if c.values.class != Unset {
				out.add(c.Column, c.array(b.row))
			}
		}
	}
	add(0, len(b.schema))
	add(own, len(b.cols))
	add(len(b.schema), own)
	return out
}
