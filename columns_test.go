package kinetl_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"pgregory.net/rapid"
)

// knownTables are tables that a stream may find, by the low bits of a fuzzer's flags.
var knownTables = []kinetl.Schema{
	nil,
	{{Name: "a", Class: kinetl.Int53}, {Name: "B", Class: kinetl.String}, {Name: "c", Class: kinetl.Double}, {Name: "d", Class: kinetl.JSON}},
	{{Name: "A", Class: kinetl.Int53, Cap: true, Native: "INTEGER"}, {Name: "b", Class: kinetl.Text, Cap: true, Native: "VARCHAR"}, {Name: "c", Class: kinetl.Bool}, {Name: "d", Class: kinetl.Empty}},
	{{Name: "a", Class: kinetl.Number}, {Name: "b", Class: kinetl.Decimal}, {Name: "c", Class: kinetl.Int64}, {Name: "D", Class: kinetl.Double, Cap: true, Native: "DOUBLE"}, {Name: "_kinesis_arrival", Class: kinetl.Text, Cap: true}, {Name: "kinesisMetadata", Class: kinetl.JSON, Cap: true}},
}

// agree decodes the payloads the quick way and the plain way, and holds what came of
// every record, and every batch, against each other.
func agree(t interface{ Fatalf(string, ...any) }, flags byte, payloads [][]byte) {
	schema, changes := knownTables[flags&3], kinetl.TypeChanges(flags>>2&1)
	mode, every := kinetl.MetadataMode(flags>>3&3), 1+int(flags>>5)*3
	quick, plain := kinetl.NewBuilder(schema, changes, mode), kinetl.NewExact(schema, changes, mode)
	decoder := codec.NewJSON()
	for i, payload := range payloads {
		rec := kinetl.Record{Sequence: fmt.Sprint(100 + i/2), Sub: uint64(i % 2), PartitionKey: string(payload[:min(len(payload), i%5)])}
		if i%3 != 0 {
			rec.Arrived = testRecord.Arrived
		}
		shard := testShard.Sibling(fmt.Sprint("s", i/3%2))
		err := decoder.Decode(payload, quick)
		if err == nil {
			err = quick.EndRow(&rec, shard)
		}
		if err != nil {
			quick.AbortRow()
		}
		if want := plain.Add(payload, &rec, shard); fmt.Sprint(err) != fmt.Sprint(want) {
			t.Fatalf("record %d %q: %v, want %v", i, payload, err, want)
		}
		if quick.Rows() != plain.Rows() {
			t.Fatalf("record %d %q: %d rows, want %d", i, payload, quick.Rows(), plain.Rows())
		}
		if i%every == every-1 {
			sameBatch(t, quick, plain)
		}
	}
	sameBatch(t, quick, plain)
}

func sameBatch(t interface{ Fatalf(string, ...any) }, quick *kinetl.Builder, plain *kinetl.Exact) {
	got, schema, ids := quick.Seal()
	want, wantSchema, wantIDs := plain.Seal()
	if fmt.Sprint(schema) != fmt.Sprint(wantSchema) {
		t.Fatalf("schema %v, want %v", schema, wantSchema)
	}
	if !slices.Equal(ids, wantIDs) {
		t.Fatalf("row ids %v, want %v", ids, wantIDs)
	}
	if got == nil || want == nil {
		if got != want {
			t.Fatalf("batch %v, want %v", got, want)
		}
		return
	}
	if !got.Schema().Equal(want.Schema()) || got.NumRows() != want.NumRows() {
		t.Fatalf("batch of %d rows of %v, want %d of %v", got.NumRows(), got.Schema(), want.NumRows(), want.Schema())
	}
	for c := range schema {
		sameColumn(t, schema[c].Name, got.Column(c), want.Column(c))
	}
}

func sameColumn(t interface{ Fatalf(string, ...any) }, name string, got, want arrow.Array) {
	if got.NullN() != want.NullN() || got.Len() != want.Len() {
		t.Fatalf("column %q has %d NULLs of %d, want %d of %d", name, got.NullN(), got.Len(), want.NullN(), want.Len())
	}
	for i := range got.Len() {
		same := got.IsNull(i) == want.IsNull(i) && got.ValueStr(i) == want.ValueStr(i)
		if f, ok := got.(*array.Float64); ok && same && !f.IsNull(i) {
			same = math.Float64bits(f.Value(i)) == math.Float64bits(want.(*array.Float64).Value(i))
		}
		if !same {
			t.Fatalf("row %d of column %q is %s, want %s", i, name, got.ValueStr(i), want.ValueStr(i))
		}
	}
}

var columnSeeds = []string{
	`{"a":1,"b":"x","c":1.5,"d":{"e":[1]}}` + "\n" + `{"a":2,"b":"y","c":2.25,"d":[]}` + "\n" + `{"a":9007199254740993,"b":null,"c":100,"d":{}}`,
	`{"a":1}` + "\n" + `{"a":1.5}` + "\n" + `{"a":12345678901234567890}` + "\n" + `{"a":1,"a":2}` + "\n" + `{"A":1e400,"a":1}` + "\n" + `{"a":"s"}`,
	`{"a":true,"b":0.10}` + "\n" + `{"b":-0,"a":false}` + "\n" + `{"a":{},"b":-0.0}` + "\n" + `{"new":1,"a":[1,]}` + "\n" + `{"new":"x"}` + "\n" + `[1]` + "\n" + `null`,
	`{"a":"\u00e4\ud83d\ude00\n","b":"` + "\u00e4" + `"}` + "\n" + `{"a": "b" , "b" :"c"}` + "\n" + "{\"a\":\"x\xff\"}" + "\n" + `{"a":"\ud83d"}` + "\n" + `{"a":[ ],"b":{ "x" : 01}}`,
	`{"a":0.8414709848078965,"b":123456789012345.6}` + "\n" + `{"a":1.50,"b":1.0}` + "\n" + `{"a":0.000001,"b":12345678901234567.5}` + "\n" + `{"a":100.000,"b":999999999999999999}`,
}

// FuzzColumns: whatever the records, the policy and the table, the quick way from
// payload to batch refuses what the plain way refuses, for the same reason, and
// gives the same schema, row ids and values (R28, R29).
func FuzzColumns(f *testing.F) {
	for _, s := range columnSeeds {
		for flags := 0; flags < 256; flags += 13 {
			f.Add(byte(flags), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, flags byte, payloads []byte) { agree(t, flags, bytes.Split(payloads, []byte("\n"))) })
}

// The same, for records that are likelier to be JSON, and for more of them.
func TestQuickColumnsAgreeWithPlainOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var payloads [][]byte
		for _, p := range rapid.SliceOfN(objects(), 1, 40).Draw(t, "records") {
			if rapid.IntRange(0, 7).Draw(t, "break") == 0 {
				at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
				p = p[:at] + rapid.SampledFrom([]string{"", " ", "\"", "\\", ",", "}", "]", "\xff", "1", ".", `"a":1,`, `"k":null,`}).Draw(t, "with") + p[at:]
			}
			payloads = append(payloads, []byte(p))
		}
		agree(t, rapid.Byte().Draw(t, "flags"), payloads)
	})
}

// nestedRecord is about 1 KB: few first-level fields, 15 leaves below.
var nestedRecord = `{"id":"c0ffee00-1111-2222-3333-444455556666","at":"2026-03-01T12:30:45.123Z","order":{"number":4711,"customer":{"name":"Ada Lovelace","email":"ada@example.com","address":{"street":"` +
	strings.Repeat("Long Street ", 12) + `","city":"London","zip":"W1"}},"total":1249.95,"paid":true,"note":null,"lines":[{"sku":"A-1001","quantity":2,"text":"` + strings.Repeat("a thing of beauty ", 14) + `"},{"sku":"B-2002","quantity":1,"text":"` + strings.Repeat("a joy for ever ", 16) + `"}]}}`

// flatRecord is about 256 bytes and 8 fields.
const flatRecord = `{"id":123456789,"user":"c0ffee00-1111-2222-3333-444455556666","event":"order.created","amount":1249.95,"currency":"EUR","paid":true,"at":"2026-03-01T12:30:45.123Z","items":[{"sku":"A-1001","qty":2,"price":499.5},{"sku":"B-2002","qty":1,"price":250.95}]}`

// quickRows decodes n copies of a record, 10,000 to a batch.
func quickRows(tb testing.TB, builder *kinetl.Builder, decoder kinetl.Decoder, payload []byte, n int) {
	for range n {
		if err := decoder.Decode(payload, builder); err != nil {
			tb.Fatal(err)
		}
		if err := builder.EndRow(&testRecord, testShard); err != nil {
			tb.Fatal(err)
		}
		if builder.Rows() == 10_000 {
			rows, _, _ := builder.Seal()
			rows.Release()
		}
	}
}

// Rows cost buffers, not objects.
func TestRowsDoNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("built for the race detector, crypto/sha256 allocates what it appends its state with")
	}
	for _, mode := range []kinetl.MetadataMode{kinetl.MetadataColumns, kinetl.MetadataNone} {
		for _, record := range []string{flatRecord, nestedRecord} {
			builder, decoder := kinetl.NewBuilder(nil, kinetl.Refuse, mode), codec.NewJSON()
			allocs := testing.AllocsPerRun(3, func() { quickRows(t, builder, decoder, []byte(record), 10_000) })
			if allocs > 2*10_000/100 {
				t.Errorf("10,000 rows of %.20q with metadata %d take %.0f allocations", record, mode, allocs)
			}
		}
	}
}

// Bytes is what the memory budget goes by: at least what the batch then holds, and
// not far beyond.
func TestBytesAreWhatTheBatchHolds(t *testing.T) {
	for _, records := range []int{100, 9_999} {
		for _, payload := range []string{flatRecord, nestedRecord, `{"a":1,"b":true}`} {
			builder, decoder := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataColumns), codec.NewJSON()
			if err := decoder.Decode([]byte(`{"rare":1.5}`), builder); err != nil {
				t.Fatal(err)
			}
			if err := builder.EndRow(&testRecord, testShard); err != nil {
				t.Fatal(err)
			}
			quickRows(t, builder, decoder, []byte(payload), records-1)
			before := builder.Bytes()
			rows, _, ids := builder.Seal()
			held := int64(len(ids))*24 + int64(len(testRecord.Sequence))
			for _, c := range rows.Columns() {
				for _, b := range c.Data().Buffers() {
					if b != nil {
						held += int64(b.Cap())
					}
				}
			}
			const slack = 32 << 10 // columns themselves, and NULLs of the rows since the last 1024th
			if before+slack < held || before > held+held/2+slack {
				t.Errorf("%d rows of %.20q: %d bytes before Seal, %d in the batch", records, payload, before, held)
			}
			if after := builder.Bytes(); after > 16<<10 {
				t.Errorf("%d bytes after Seal", after)
			}
		}
	}
}

func BenchmarkRows(b *testing.B) {
	for _, mode := range []struct {
		name string
		mode kinetl.MetadataMode
	}{{"payload", kinetl.MetadataNone}, {"metadata", kinetl.MetadataColumns}} {
		for _, record := range []struct{ name, text string }{{"flat", flatRecord}, {"nested", nestedRecord}} {
			payload := []byte(record.text)
			b.Run(record.name+"/"+mode.name+"/quick", func(b *testing.B) {
				builder, decoder := kinetl.NewBuilder(nil, kinetl.Refuse, mode.mode), codec.NewJSON()
				b.ReportAllocs()
				b.SetBytes(int64(len(payload)))
				b.ResetTimer()
				quickRows(b, builder, decoder, payload, b.N)
			})
			b.Run(record.name+"/"+mode.name+"/plain", func(b *testing.B) {
				plain := kinetl.NewExact(nil, kinetl.Refuse, mode.mode)
				b.ReportAllocs()
				b.SetBytes(int64(len(payload)))
				for b.Loop() {
					if err := plain.Add(payload, &testRecord, testShard); err != nil {
						b.Fatal(err)
					}
					if plain.Rows() == 10_000 {
						rows, _, _ := plain.Seal()
						rows.Release()
					}
				}
			})
		}
	}
}
