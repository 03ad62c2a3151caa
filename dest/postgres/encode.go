package postgres

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/kinetl/kinetl"
)

// The binary format of COPY: a signature, then each row as a count of fields and each
// field as its length and the bytes that the type's receive function takes, then a
// count of -1. Source: the COPY page of PostgreSQL's manual.
const (
	copySignature = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	copyTrailer   = "\xff\xff"
)

var null = []byte{0xff, 0xff, 0xff, 0xff}

// copyReader is what COPY reads. Next appends one row, or nothing after the last; it
// is called by one goroutine, which may still be at it when the COPY has failed.
type copyReader struct {
	next  func(dst []byte) []byte
	buf   []byte // encoded, from off on not yet read
	off   int
	ended bool
}

func newCopyReader(next func(dst []byte) []byte) *copyReader {
	return &copyReader{next: next, buf: append(make([]byte, 0, 128<<10), copySignature...)}
}

func (r *copyReader) Read(p []byte) (int, error) {
	if len(r.buf)-r.off < len(p) {
		r.buf, r.off = r.buf[:copy(r.buf, r.buf[r.off:])], 0
	}
	for !r.ended && len(r.buf)-r.off < len(p) {
		n := len(r.buf)
		if r.buf = r.next(r.buf); len(r.buf) == n {
			r.buf, r.ended = append(r.buf, copyTrailer...), true
		}
	}
	n := copy(p, r.buf[r.off:])
	if r.off += n; n == 0 && r.ended {
		return 0, io.EOF
	}
	return n, nil
}

// kind is how a column's values are written.
type kind uint8

const (
	asNothing kind = iota // no value can be: every one is refused before
	asBool
	asInt8
	asInt4
	asInt2
	asFloat8
	asFloat4
	asText    // the bytes as they are: text, json, enums, bytea
	asJSONB   // text
	asObject  // a struct, to jsonb
	asDecimal // a decimal128, to numeric
	asNumber  // text, to numeric
	asInstant // microseconds, to timestamptz
	asDate    // text, and so on
	asTime
	asTimestamp
	asTimestamptz
	asUUID
)

// field is the values of one column of a batch, as plain buffers: COPY may read them
// for a moment after the batch was released.
type field struct {
	kind    kind
	valid   []byte // a bit a row, from bit first on; nil: none is null
	first   int
	bits    []byte // booleans, likewise
	ints    []int64
	floats  []float64
	decimal []decimal128.Num
	offsets []int32
	data    []byte
	object  []field // of a struct, with their names
	names   []string
	text    []byte // scratch
}

// newField looks into an array of the type that the class has in a batch.
func newField(values arrow.Array, kind kind) (field, error) {
	data := values.Data()
	f := field{kind: kind, first: data.Offset()}
	if values.NullN() > 0 {
		f.valid = values.NullBitmapBytes()
	}
	ok := false
	switch a := values.(type) {
	case *array.Boolean:
		f.bits, ok = data.Buffers()[1].Bytes(), kind == asBool
	case *array.Int64:
		f.ints, ok = a.Int64Values(), kind == asInt8 || kind == asInt4 || kind == asInt2
	case *array.Float64:
		f.floats, ok = a.Float64Values(), kind == asFloat8 || kind == asFloat4
	case *array.Decimal128:
		f.decimal, ok = a.Values(), kind == asDecimal
	case *array.Timestamp:
		f.ints, ok = arrow.Int64Traits.CastFromBytes(arrow.TimestampTraits.CastToBytes(a.TimestampValues())), kind == asInstant
	case *array.String:
		f.offsets = a.ValueOffsets()
		if text := data.Buffers()[2]; text != nil { // nil where all are null
			f.data = text.Bytes()
		}
		ok = kind == asText || kind == asJSONB || kind == asNumber || kind >= asDate || kind == asNothing
	case *array.Struct:
		return newObject(a, f)
	}
	if !ok {
		return field{}, fmt.Errorf("a batch has values of type %s for a column that takes none such", values.DataType())
	}
	return f, nil
}

func newObject(a *array.Struct, f field) (field, error) {
	if f.kind != asObject {
		return field{}, fmt.Errorf("a batch has values of type %s for a column that takes none such", a.DataType())
	}
	f.object = make([]field, a.NumField())
	for i, member := range a.DataType().(*arrow.StructType).Fields() {
		kind := asText
		if member.Type.ID() == arrow.INT64 {
			kind = asInt8
		}
		var err error
		if f.object[i], err = newField(a.Field(i), kind); err != nil {
			return field{}, fmt.Errorf("field %s: %w", member.Name, err)
		}
		f.names = append(f.names, member.Name)
	}
	return f, nil
}

func (f *field) isNull(row int) bool {
	i := f.first + row
	return f.valid != nil && f.valid[i>>3]&(1<<(i&7)) == 0
}

// bytes is the text of a row.
func (f *field) bytes(row int) []byte { return f.data[f.offsets[row]:f.offsets[row+1]] }

// appendRow appends one row of COPY's format.
func appendRow(dst []byte, fields []field, row int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(fields)))
	for i := range fields {
		f := &fields[i]
		if f.isNull(row) {
			dst = append(dst, null...)
			continue
		}
		switch f.kind {
		case asInt8:
			dst = append64(dst, uint64(f.ints[row]))
		case asText:
			dst = appendBytes(dst, f.bytes(row))
		case asJSONB:
			text := f.bytes(row)
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(text)+1))
			dst = append(append(dst, jsonbVersion), text...)
		case asFloat8:
			dst = append64(dst, math.Float64bits(f.floats[row]))
		case asBool:
			i := f.first + row
			dst = append(dst, 0, 0, 0, 1, f.bits[i>>3]>>(i&7)&1)
		default:
			dst = f.append(dst, row)
		}
	}
	return dst
}

// jsonbVersion is what the text of a jsonb begins with.
const jsonbVersion = 1

// append appends a value of the less common kinds, which is not null.
func (f *field) append(dst []byte, row int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	switch f.kind {
	case asInt4:
		dst = binary.BigEndian.AppendUint32(dst, uint32(f.ints[row]))
	case asInt2:
		dst = binary.BigEndian.AppendUint16(dst, uint16(f.ints[row]))
	case asFloat4:
		dst = binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(f.floats[row])))
	case asDecimal:
		dst = appendDecimal(dst, f.decimal[row])
	case asNumber:
		n, _ := parseNumber(&f.text, f.bytes(row)) // checked by misfits
		dst = n.appendNumeric(dst)
	case asInstant:
		dst = binary.BigEndian.AppendUint64(dst, uint64(sinceEpoch(f.ints[row])))
	case asDate, asTime, asTimestamp, asTimestamptz:
		dst = appendMoment(dst, f.kind, f.bytes(row))
	case asUUID:
		id, _ := parseUUID(f.bytes(row)) // checked by misfits
		dst = append(dst, id[:]...)
	case asObject:
		dst = f.appendObject(append(dst, jsonbVersion), row)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func append64(dst []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 8), v)
}

func appendBytes[T string | []byte](dst []byte, text T) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(text))), text...)
}

// appendObject appends a struct as JSON text.
func (f *field) appendObject(dst []byte, row int) []byte {
	dst = append(dst, '{')
	for i := range f.object {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(kinetl.QuoteJSON(dst, f.names[i]), ':')
		switch m := &f.object[i]; {
		case m.isNull(row):
			dst = append(dst, "null"...)
		case m.kind == asText:
			dst = kinetl.QuoteJSON(dst, m.bytes(row))
		default:
			dst = fmt.Append(dst, m.ints[row])
		}
	}
	return append(dst, '}')
}

// epoch is 2000-01-01, from which PostgreSQL counts, in microseconds since 1970.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// sinceEpoch is an instant as PostgreSQL counts. One that is too early for that, by
// 290 millennia, becomes one that the server refuses; the smallest number would be
// its -infinity.
func sinceEpoch(micros int64) int64 {
	if micros <= math.MinInt64+epoch {
		return math.MinInt64 + 1
	}
	return micros - epoch
}
