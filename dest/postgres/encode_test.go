package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/postgres/postgrestest"
)

// scanNumeric reads a numeric on the wire as pgx does.
func scanNumeric(t *testing.T, wire []byte) *big.Rat {
	t.Helper()
	var n pgtype.Numeric
	if err := pgtype.NewMap().Scan(pgtype.NumericOID, pgtype.BinaryFormatCode, wire, &n); err != nil || !n.Valid || n.NaN {
		t.Fatalf("% x: %v", wire, err)
	}
	r := new(big.Rat).SetInt(n.Int)
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n.Exp, -n.Exp))), nil))
	if n.Exp < 0 {
		return r.Quo(r, scale)
	}
	return r.Mul(r, scale)
}

// FuzzDecimal: pgx reads what was written.
func FuzzDecimal(f *testing.F) {
	f.Add(int64(0), uint64(0))
	f.Add(int64(-1), uint64(math.MaxUint64))
	f.Add(int64(0), uint64(10000))
	f.Add(int64(math.MaxInt64), uint64(math.MaxUint64))
	f.Add(int64(math.MinInt64), uint64(0))
	f.Add(int64(5421010862427522170), uint64(687399551400673280)) // 10^38
	f.Fuzz(func(t *testing.T, hi int64, lo uint64) {
		d := decimal128.New(hi, lo)
		if got, want := scanNumeric(t, appendDecimal(nil, d)), new(big.Rat).SetInt(d.BigInt()); got.Cmp(want) != 0 {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$`)

// FuzzNumeric: pgx reads the number that was written, and whether a numeric(p,s) holds
// it is what exact arithmetic says.
func FuzzNumeric(f *testing.F) {
	for _, s := range []string{"0", "-0", "1", "1.50", "0.001", "1e2", "12.5E-1", "99999999.99", "100000000", "-1e-3", "0e9999", "12345.6789", "0.00012345", "1e-9", "10000", "9999.9999"} {
		f.Add(s, uint8(10), int16(2))
	}
	f.Fuzz(func(t *testing.T, text string, p uint8, s int16) {
		if !jsonNumber.MatchString(text) || len(text) > 100 {
			return
		}
		var scratch []byte
		n, ok := parseNumber(&scratch, []byte(text))
		want, isNumber := new(big.Rat).SetString(text)
		if !ok || !isNumber {
			t.Fatalf("%s is no number: %v", text, ok)
		}
		if got := scanNumeric(t, n.appendNumeric(nil)); got.Cmp(want) != 0 {
			t.Fatalf("%s became %s", text, got)
		}
		precision, scale := int(p)+1, int(s)%500
		scaled := new(big.Rat).Set(want)
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil))
		if scale < 0 {
			scaled.Quo(scaled, power)
		} else {
			scaled.Mul(scaled, power)
		}
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
		fits := scaled.IsInt() && scaled.Num().CmpAbs(limit) < 0
		if got := n.fits(int32(precision<<16|scale&0x7ff) + 4); got != fits {
			t.Fatalf("%s in numeric(%d,%d): %v, want %v", text, precision, scale, got, fits)
		}
	})
}

// FuzzMoment: an instant with a zone is what package time makes of it.
func FuzzMoment(f *testing.F) {
	for _, s := range []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678901+02:00", "1600-02-29T23:59:59.999999-15:59", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-02 03:04", "03:04:05", "2026-02-30", "2026-01-02T03:04:05.1234567Z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []kind{asDate, asTime, asTimestamp} {
			parseMoment(kind, []byte(text)) // does not panic
		}
		m, ok := parseMoment(asTimestamptz, []byte(text))
		want, err := time.Parse(time.RFC3339Nano, strings.Replace(strings.ToUpper(text), " ", "T", 1))
		if err != nil || want.Year() == 0 || strings.Contains(text, ",") {
			return // more than RFC 3339 is read, such as no seconds
		}
		if exact := want.Nanosecond()%1000 == 0; ok != exact && len(text) < 30 && offsetOf(want) < 16*3600 {
			t.Fatalf("%q: read %v, want %v", text, ok, exact)
		}
		if ok && m.days*day+m.micros-m.offset != want.UnixMicro()-epoch {
			t.Fatalf("%q: %+v, want %v", text, m, want)
		}
	})
}

func offsetOf(t time.Time) int {
	_, offset := t.Zone()
	return max(offset, -offset)
}

// FuzzUUID: what is read is written the same.
func FuzzUUID(f *testing.F) {
	f.Add("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	f.Add("6BA7B810-9dad-11d1-80b4-00c04fd430cg")
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseUUID([]byte(text))
		if ok && fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]) != strings.ToLower(text) {
			t.Fatalf("%q became %x", text, id)
		}
	})
}

// everyKind is a batch with all physical types, nulls among them.
func everyKind(rows int) (arrow.RecordBatch, []kind) {
	kinds := []kind{asBool, asInt8, asFloat8, asText, asJSONB, asDecimal, asInstant, asObject}
	classes := []kinetl.Class{kinetl.Bool, kinetl.Int64, kinetl.Double, kinetl.String, kinetl.JSON, kinetl.Decimal, kinetl.Timestamp, kinetl.Metadata}
	var fields []arrow.Field
	for i, c := range classes {
		fields = append(fields, arrow.Field{Name: fmt.Sprint(i), Type: c.Arrow(), Nullable: true})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for row := range rows {
		for c := range classes {
			if (row+c)%5 == 0 {
				b.Field(c).AppendNull()
				continue
			}
			switch f := b.Field(c).(type) {
			case *array.BooleanBuilder:
				f.Append(row%2 == 0)
			case *array.Int64Builder:
				f.Append(int64(row))
			case *array.Float64Builder:
				f.Append(float64(row) / 7)
			case *array.StringBuilder:
				f.Append(fmt.Sprintf(`"row %d"`, row))
			case *array.Decimal128Builder:
				f.Append(decimal128.FromI64(int64(row) * 10001))
			case *array.TimestampBuilder:
				f.Append(arrow.Timestamp(row))
			case *array.StructBuilder:
				f.Append(true)
				for m := range f.NumField() {
					if s, ok := f.FieldBuilder(m).(*array.StringBuilder); ok && m != row%7 {
						s.Append(fmt.Sprintf("member \"%d\"", row))
					} else {
						f.FieldBuilder(m).AppendNull()
					}
				}
			}
		}
	}
	return b.NewRecordBatch(), kinds
}

func fieldsOf(t testing.TB, batch arrow.RecordBatch, kinds []kind) []field {
	t.Helper()
	var out []field
	for i, k := range kinds {
		f, err := newField(batch.Column(i), k)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

// A part of a batch is written like the rows that it holds, wherever it begins.
func TestSlicesOfABatch(t *testing.T) {
	batch, kinds := everyKind(40)
	whole := fieldsOf(t, batch, kinds)
	for from := range 20 {
		slice := fieldsOf(t, batch.NewSlice(int64(from), int64(from+20)), kinds)
		for row := range 20 {
			if got, want := appendRow(nil, slice, row), appendRow(nil, whole, from+row); !bytes.Equal(got, want) {
				t.Fatalf("row %d from %d: % x, want % x", row, from, got, want)
			}
		}
	}
}

// What COPY reads is the same however it asks, and is well formed.
func TestCopyStream(t *testing.T) {
	batch, kinds := everyKind(1000)
	fields := fieldsOf(t, batch, kinds)
	reader := func() io.Reader {
		row := -1
		return newCopyReader(func(dst []byte) []byte {
			if row++; row >= 1000 {
				return dst
			}
			return appendRow(dst, fields, row)
		})
	}
	want, err := io.ReadAll(reader())
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]io.Reader{"byte by byte": iotest.OneByteReader(reader()), "by halves": iotest.HalfReader(reader())} {
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes (%v), want %d", name, len(got), err, len(want))
		}
	}
	rest, found := bytes.CutPrefix(want, []byte(copySignature))
	if !found {
		t.Fatal("no signature")
	}
	rows := 0
	for binary.BigEndian.Uint16(rest) != 0xffff {
		n := int(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
		for range n {
			size := int32(binary.BigEndian.Uint32(rest))
			rest = rest[4+max(size, 0):]
		}
		rows++
	}
	if rows != 1000 || len(rest) != 2 {
		t.Errorf("%d rows and %d bytes behind", rows, len(rest)-2)
	}
}

// A batch whose types are not those of its classes is an error and no garbage.
func TestAWrongBatch(t *testing.T) {
	batch, kinds := everyKind(1)
	for i := range kinds {
		for _, k := range kinds {
			_, err := newField(batch.Column(i), k)
			text := batch.Column(i).DataType().ID() == arrow.STRING && (k == asText || k == asJSONB)
			if fits := k == kinds[i] || text; (err == nil) != fits {
				t.Errorf("%s as kind %d: %v", batch.Column(i).DataType(), k, err)
			}
		}
	}
}

// A metadata object is written as the text that the engine has for it.
func TestObjectText(t *testing.T) {
	batch, kinds := everyKind(7)
	f := fieldsOf(t, batch, kinds)[7]
	for row := range 7 {
		if f.isNull(row) {
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(f.appendObject(nil, row), &got); err != nil || len(got) != 7 {
			t.Errorf("row %d: %v (%v)", row, got, err)
		}
	}
}

// Instants that PostgreSQL has no room for are refused, and never become infinity.
func TestInstants(t *testing.T) {
	h := newHarness(t, "public")
	d, schema := h.worker(t, kinetl.Schema{{Name: "at", Class: kinetl.Timestamp}})
	const earliest = -210866803200000000 // 4714-11-24 BC
	good := []any{arrow.Timestamp(0), arrow.Timestamp(earliest), arrow.Timestamp(math.MaxInt64), nil}
	bad := []any{arrow.Timestamp(math.MinInt64), arrow.Timestamp(earliest - 1), arrow.Timestamp(math.MinInt64 + epoch), arrow.Timestamp(math.MinInt64 + epoch + 1)}
	rows := [][]any{}
	for _, v := range append(good, bad...) {
		rows = append(rows, []any{v})
	}
	wantRefused(t, d, textPart(kinetl.Oldest, at(9), schema, rows...), 5, 6, 7, 8)
	commitAll(t, d, textPart(kinetl.Oldest, at(9), schema, rows[:4]...))
	if got := h.text(t, "SELECT string_agg(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US BC'), ', ' ORDER BY at) FROM orders"); got != "4714-11-24 00:00:00.000000 BC, 1970-01-01 00:00:00.000000 AD, 294247-01-10 04:00:54.775807 AD" {
		t.Errorf("stored %s", got)
	}
}

// Writing a row allocates nothing.
func TestEncodingAllocatesNothing(t *testing.T) {
	batch, kinds := everyKind(1000)
	fields := fieldsOf(t, batch, kinds[:7])
	dst := make([]byte, 0, 1<<20)
	if n := testing.AllocsPerRun(10, func() {
		dst = dst[:0]
		for row := range 1000 {
			dst = appendRow(dst, fields, row)
		}
	}); n > 0 {
		t.Errorf("%v allocations for 1000 rows", n)
	}
}

// BenchmarkEncode writes rows of 10 columns in the format of COPY.
func BenchmarkEncode(b *testing.B) {
	schema, batch := benchBatch(10_000)
	fields := make([]field, len(schema))
	for i, c := range schema {
		var err error
		if fields[i], err = newField(batch.Column(i), column{Column: c, oid: oidOf(c.Class)}.kind()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	rows, size := 0, int64(0)
	for b.Loop() {
		row := -1
		n, err := io.Copy(struct{ io.Writer }{io.Discard}, newCopyReader(func(dst []byte) []byte {
			if row++; row >= 10_000 {
				return dst
			}
			return appendRow(dst, fields, row)
		}))
		if err != nil {
			b.Fatal(err)
		}
		rows, size = rows+10_000, n
	}
	b.SetBytes(size)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
}

func oidOf(c kinetl.Class) uint32 {
	return map[string]uint32{"jsonb": pgtype.JSONBOID, "boolean": pgtype.BoolOID, "bigint": pgtype.Int8OID, "double precision": pgtype.Float8OID, "text": pgtype.TextOID}[typeOf(c)]
}

// BenchmarkCommit stores parts of 10 columns: 4 strings, 2 integers, 2 doubles, a
// boolean and JSON.
func BenchmarkCommit(b *testing.B) {
	for _, rows := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			d, err := New(b.Context(), Options{URL: postgrestest.Start(b)})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			schema, batch := benchBatch(rows)
			ctx := context.Background()
			_, err = d.Prepare(ctx, "bench", schema, kinetl.Refuse)
			_, claimErr := d.Claim(ctx, "bench", []kinetl.Claim{{Shard: shard, Start: at(0)}})
			if err := errors.Join(err, claimErr); err != nil {
				b.Fatal(err)
			}
			n := 0
			for b.Loop() {
				p := kinetl.Part{Shard: shard, After: at(n), Through: at(n + 1), Schema: schema, Rows: batch}
				if _, err := d.Commit(ctx, "bench", []kinetl.Part{p}); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n*rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func benchBatch(rows int) (kinetl.Schema, arrow.RecordBatch) {
	classes := []kinetl.Class{kinetl.String, kinetl.String, kinetl.String, kinetl.String, kinetl.Int53, kinetl.Int64, kinetl.Double, kinetl.Double, kinetl.Bool, kinetl.JSON}
	var schema kinetl.Schema
	var fields []arrow.Field
	for i, c := range classes {
		schema = append(schema, kinetl.Column{Name: fmt.Sprintf("column%d", i), Class: c})
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("column%d", i), Type: c.Arrow(), Nullable: true})
	}
	r := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer r.Release()
	for i := range rows {
		for c, class := range classes {
			switch f := r.Field(c).(type) {
			case *array.Int64Builder:
				f.Append(int64(i * 7919))
			case *array.Float64Builder:
				f.Append(float64(i) / 7)
			case *array.BooleanBuilder:
				f.Append(i%3 == 0)
			case *array.StringBuilder:
				if class == kinetl.JSON {
					f.Append(fmt.Sprintf(`{"id":%d,"tags":["a","b%d"]}`, i, i%100))
				} else {
					f.Append(fmt.Sprintf("value %d of column %d", i*31, c))
				}
			}
		}
	}
	return schema, r.NewRecordBatch()
}
