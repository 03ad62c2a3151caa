package kinetl

import (
	"fmt"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Conform re-types a sealed batch for a table whose columns have widened since: the
// result is the batch that a Builder would have sealed for the table as it is now.
// From is the schema of rows, to the table's. Columns keep the batch's order and
// take the table's names; those that need no change share their memory with rows.
// The caller releases the result, and rows as before.
//
// The error names the column that the table lacks, or that can't hold the batch's
// values: the rows have to be decoded again for the table as it is.
func Conform(rows arrow.RecordBatch, from, to Schema) (arrow.RecordBatch, Schema, error) {
	out := &sealed{}
	for i, have := range from {
		at := to.Index(have.Name)
		if at < 0 {
			out.release()
			return nil, nil, fmt.Errorf("column %q is gone", have.Name)
		}
		want := to[at]
		if !have.Class.conforms(want.Class) {
			out.release()
			return nil, nil, fmt.Errorf("column %q is %s, which can't hold %s", want.Name, want.Class, have.Class)
		}
		out.add(want, conformed(rows.Column(i), have.Class, want.Class))
	}
	return out.batch(int(rows.NumRows())), out.schema, nil
}

// conforms reports whether a column of class d can take the values of a batch's
// column of class c. JSON can't go to Text: a batch's JSON column no longer says
// which of its texts were strings, and Text holds those without quotes.
func (c Class) conforms(d Class) bool {
	if c == Unset || d == Unset || c == JSON && d == Text {
		return false
	}
	return c.Join(d) == d || c.Kind() == KindFixed && (d == String || d == JSON)
}

// conformed returns the values in the physical type and the text of class to.
func conformed(in arrow.Array, from, to Class) arrow.Array {
	switch {
	case from == Empty && !holdsEmpty(to):
		return array.MakeArrayOfNull(memory.DefaultAllocator, to.Arrow(), in.Len())
	case isSame(from, to):
		in.Retain()
		return in
	}
	out := values{class: to, held: new(int64)}
	out.convert(in, from)
	return out.array(in.Len())
}

// widen makes v hold its values as class to, which holds them all.
func (v *values) widen(to Class) {
	from, rows := v.class, v.n
	switch {
	case from == Empty && !holdsEmpty(to):
		*v.held -= v.size()
		*v = values{class: to, hint: v.hint, held: v.held}
	case from == Unset, isSame(from, to):
		v.class = to
	default:
		in := v.array(rows)
		defer in.Release()
		v.class = to
		v.convert(in, from)
	}
}

// convert appends the values of an array of class from, none of which is Empty
// where v holds none.
func (v *values) convert(in arrow.Array, from Class) {
	v.setRoom(in.Len())
	ints, _ := in.(*array.Int64)
	var text []byte
	for i := range in.Len() {
		switch {
		case in.IsNull(i):
		case v.class == Decimal:
			v.decimal(i, decimal128.FromI64(ints.Value(i)))
		case v.class == Double:
			v.word(i, math.Float64bits(float64(ints.Value(i))))
		default:
			text = appendText(text[:0], in, i)
			if v.class == JSON && (from == String || from == Timestamp) {
				putQuoted(v, i, text)
			} else {
				putText(v, i, text)
			}
		}
	}
}

// isSame reports whether values of the two classes look the same in a batch.
func isSame(from, to Class) bool {
	switch {
	case from == to, from == Int53 && to == Int64:
		return true
	case to == Text, to == JSON && from != String, to == String:
		return from.Arrow().ID() == arrow.STRING
	}
	return false
}

// appendText appends a value as its canonical text.
func appendText(dst []byte, values arrow.Array, i int) []byte {
	switch values := values.(type) {
	case *array.String:
		return append(dst, values.Value(i)...)
	case *array.Boolean:
		return strconv.AppendBool(dst, values.Value(i))
	case *array.Int64:
		return strconv.AppendInt(dst, values.Value(i), 10)
	case *array.Float64:
		return append(dst, FormatDouble(values.Value(i))...)
	case *array.Decimal128:
		return values.Value(i).BigInt().Append(dst, 10)
	case *array.Timestamp:
		return values.Value(i).ToTime(arrow.Microsecond).UTC().AppendFormat(dst, arrivalLayout)
	case *array.Struct:
		return appendObject(dst, func(dst []byte, f int) ([]byte, bool) {
			if values.Field(f).IsNull(i) {
				return dst, false
			}
			return appendText(dst, values.Field(f), i), true
		})
	}
	panic(fmt.Sprintf("kinetl: a batch has a column of type %s, which no class has", values.DataType()))
}
