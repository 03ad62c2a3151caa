package kinetl

import (
	"math/big"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
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

// seal builds the columns: the table's in its order, new ones in the order in which
// they came, new metadata columns last.
func (b *Builder) seal() *sealed {
	meta := make(map[int]metadataColumn, len(b.meta))
	own := len(b.schema)
	for _, m := range b.meta {
		meta[m.col] = m
		own = max(own, m.col+1)
	}
	out := &sealed{}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			c := &b.cols[i]
			if m, ok := meta[i]; ok {
				out.add(c.Column, b.metadataArray(m))
			} else if len(c.cells) > 0 {
				out.add(c.Column, b.cellArray(c))
			}
		}
	}
	add(0, len(b.schema))
	add(own, len(b.cols))
	add(len(b.schema), own)
	return out
}

// cellArray builds a column's array from its cells.
func (b *Builder) cellArray(c *column) arrow.Array {
	switch c.Class {
	case Bool:
		out := array.NewBooleanBuilder(memory.DefaultAllocator)
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(text[0] == 't') })
	case Int53, Int64:
		out := array.NewInt64Builder(memory.DefaultAllocator)
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(parseInt(text)) })
	case Decimal:
		out := array.NewDecimal128Builder(memory.DefaultAllocator, Decimal.Arrow().(*arrow.Decimal128Type))
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(parseDecimal(text)) })
	case Double:
		out := array.NewFloat64Builder(memory.DefaultAllocator)
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(parseDouble(text)) })
	}
	out := newText(len(b.rows))
	n := 0
	for _, cell := range c.cells {
		n += int(cell.n)
	}
	out.ReserveData(n)
	if c.Class != JSON {
		return b.fill(out, c, func(text []byte, _ Class) { out.BinaryBuilder.Append(text) })
	}
	var quote []byte
	return b.fill(out, c, func(text []byte, class Class) {
		if class == String {
			quote = QuoteJSON(quote[:0], text)
			text = quote
		}
		out.BinaryBuilder.Append(text)
	})
}

// fill puts the cells at their rows and NULL elsewhere. {} and [] are NULL in a
// column of scalars.
func (b *Builder) fill(out array.Builder, c *column, put func(text []byte, class Class)) arrow.Array {
	defer out.Release()
	out.Reserve(len(b.rows))
	keepsEmpty := holdsEmpty(c.Class)
	next := uint32(0)
	for _, cell := range c.cells {
		if cell.class == Empty && !keepsEmpty {
			continue
		}
		if cell.row > next {
			out.AppendNulls(int(cell.row - next))
		}
		put(b.text(cell.off, cell.n), cell.class)
		next = cell.row + 1
	}
	if rest := uint32(len(b.rows)) - next; rest > 0 {
		out.AppendNulls(int(rest))
	}
	return out.NewArray()
}

// holdsEmpty reports whether {} and [] keep their text in a column of the class.
func holdsEmpty(c Class) bool { return c == Empty || c == JSON || c == Text }

func newText(rows int) *array.StringBuilder {
	out := array.NewStringBuilder(memory.DefaultAllocator)
	out.Reserve(rows)
	return out
}

// The parsers take canonical texts of classes that the target holds; the class says
// that they can't fail.

func parseInt(text []byte) int64 {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	var v uint64
	for _, c := range text {
		v = v*10 + uint64(c-'0')
	}
	if negative {
		return -int64(v)
	}
	return int64(v)
}

func parseDouble(text []byte) float64 {
	f, _ := strconv.ParseFloat(string(text), 64)
	return f
}

func parseDecimal(text []byte) decimal128.Num {
	if len(text) <= 18 {
		return decimal128.FromI64(parseInt(text))
	}
	v, _ := new(big.Int).SetString(string(text), 10)
	return decimal128.FromBigInt(v)
}
