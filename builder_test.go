package kinetl_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"pgregory.net/rapid"
)

var testShard = kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", Created: 1700000000, Shard: "shardId-000000000003"}

// table is a batch in the form that tests compare: rows of values by column, NULL
// left out.
type table struct {
	schema  kinetl.Schema
	rows    []map[string]string
	reasons []string // of refused records
}

// load decodes the payloads for a table and seals them.
func load(builder *kinetl.Builder, payloads []string) (arrow.RecordBatch, kinetl.Schema, []string) {
	var reasons []string
	decoder := codec.NewJSON()
	for i, payload := range payloads {
		err := decoder.Decode([]byte(payload), builder)
		if err == nil {
			err = builder.EndRow(&kinetl.Record{Sequence: fmt.Sprint(i + 1)}, testShard)
		}
		if err != nil {
			builder.AbortRow()
			reasons = append(reasons, err.Error())
		}
	}
	rows, schema, _ := builder.Seal()
	return rows, schema, reasons
}

func loadTable(schema kinetl.Schema, changes kinetl.TypeChanges, payloads ...string) table {
	rows, sealed, reasons := load(kinetl.NewBuilder(schema, changes, kinetl.MetadataNone), payloads)
	return table{schema: sealed, rows: rowsOf(rows, sealed), reasons: reasons}
}

// rowsOf reads a batch, and that its types are its schema's.
func rowsOf(batch arrow.RecordBatch, schema kinetl.Schema) []map[string]string {
	if batch == nil {
		return nil
	}
	rows := make([]map[string]string, batch.NumRows())
	for i := range rows {
		rows[i] = map[string]string{}
	}
	for c, values := range batch.Columns() {
		if name := batch.ColumnName(c); name != schema[c].Name || !arrow.TypeEqual(values.DataType(), schema[c].Class.Arrow()) {
			panic(fmt.Sprintf("column %s %s, schema %+v", name, values.DataType(), schema[c]))
		}
		for i := range rows {
			if !values.IsNull(i) {
				rows[i][schema[c].Name] = textOf(values, i)
			}
		}
	}
	return rows
}

func textOf(values arrow.Array, i int) string {
	if f, ok := values.(*array.Float64); ok {
		return kinetl.FormatDouble(f.Value(i)) // tells 0 from -0
	}
	return values.ValueStr(i)
}

func (tb table) classes() map[string]kinetl.Class {
	out := map[string]kinetl.Class{}
	for _, c := range tb.schema {
		out[kinetl.Fold(c.Name)] = c.Class
	}
	return out
}

func (tb table) column(name string) []string {
	var out []string
	for _, row := range tb.rows {
		if v, ok := row[name]; ok {
			out = append(out, v)
		} else {
			out = append(out, "NULL")
		}
	}
	return out
}

func (tb table) check(t *testing.T, name string, class kinetl.Class, want ...string) {
	t.Helper()
	if got := tb.classes()[kinetl.Fold(name)]; got != class {
		t.Errorf("column %s is %s, want %s", name, got, class)
	}
	if got := tb.column(name); !slices.Equal(got, want) {
		t.Errorf("column %s is %q, want %q", name, got, want)
	}
}

func (tb table) checkRefused(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(tb.reasons, want) {
		t.Errorf("refused %q, want %q", tb.reasons, want)
	}
}

func TestT1IntegersBeyondDoubles(t *testing.T) {
	got := loadTable(nil, kinetl.Refuse, `{"n":9007199254740993}`, `{"n":1234567890123456789}`, `{"n":-9223372036854775808}`)
	got.check(t, "n", kinetl.Int64, "9007199254740993", "1234567890123456789", "-9223372036854775808")

	got = loadTable(nil, kinetl.Refuse, `{"n":18446744073709551615}`, `{"n":-99999999999999999999999999999999999999}`, `{"n":1}`)
	got.check(t, "n", kinetl.Decimal, "18446744073709551615", "-99999999999999999999999999999999999999", "1")
}

func TestT2NumbersBeyondDecimal(t *testing.T) {
	nines := strings.Repeat("9", 39)
	got := loadTable(nil, kinetl.Refuse, `{"n":`+nines+`}`, `{"n":1}`, `{"n":0.10}`, `{"n":1e400}`)
	got.check(t, "n", kinetl.Number, "9."+nines[1:]+"e+38", "1", "0.1", "1e+400")
}

// R29: numbers widen under any policy, in either order.
func TestT4IntegersAndFractions(t *testing.T) {
	loadTable(nil, kinetl.Refuse, `{"n":100}`, `{"n":100.5}`).check(t, "n", kinetl.Double, "100", "100.5")
	loadTable(nil, kinetl.Refuse, `{"n":100.5}`, `{"n":100}`).check(t, "n", kinetl.Double, "100.5", "100")
	loadTable(nil, kinetl.Refuse, `{"n":0.5}`, `{"n":9007199254740993}`).check(t, "n", kinetl.Number, "0.5", "9007199254740993")
}

// R28, R29: under allow the order of records decides neither schema nor rows.
func TestT5PermutationsGiveOneSchema(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payloads := rapid.SliceOfN(objects(), 1, 12).Draw(t, "records")
		permuted := rapid.Permutation(payloads).Draw(t, "permuted")
		a, b := loadTable(nil, kinetl.Allow, payloads...), loadTable(nil, kinetl.Allow, permuted...)
		if x, y := fmt.Sprint(a.classes()), fmt.Sprint(b.classes()); x != y {
			t.Fatalf("one order gives %s, another %s", x, y)
		}
		if x, y := multiset(a.rows), multiset(b.rows); !slices.Equal(x, y) {
			t.Fatalf("one order gives\n%s\nanother\n%s", strings.Join(x, "\n"), strings.Join(y, "\n"))
		}
	})
}

func multiset(rows []map[string]string) []string {
	var out []string
	for _, row := range rows {
		out = append(out, fmt.Sprint(row))
	}
	slices.Sort(out)
	return out
}

// objects draws records whose few fields take values of every class.
func objects() *rapid.Generator[string] {
	scalars := []string{"null", "true", "false", "1", "-0", "2.50", "1e3", "9007199254740993", "1e30", "1e40", "0.1000000000000000000001", "1e400", `""`, `"s"`, `"1"`, `"{}"`, `"a\"\u0001b"`, "{}", "[ ]", `{"x":1.0}`, `[1, null]`}
	return rapid.Custom(func(t *rapid.T) string {
		var fields []string
		for _, name := range []string{"a", "b", "c", "d"} {
			switch rapid.IntRange(0, 3).Draw(t, "field") {
			case 0:
			case 1:
				fields = append(fields, fmt.Sprintf("%q:%s", name, literals().Draw(t, "number")))
			default:
				fields = append(fields, fmt.Sprintf("%q:%s", name, rapid.SampledFrom(scalars).Draw(t, "value")))
			}
		}
		return "{" + strings.Join(fields, ",") + "}"
	})
}

// R29, both policies.
func TestT6ScalarThenObject(t *testing.T) {
	got := loadTable(nil, kinetl.Refuse, `{"x":"s"}`, `{"x":{}}`, `{"x":{"y":1}}`)
	got.check(t, "x", kinetl.String, "s", "NULL")
	got.checkRefused(t, `field "x": object or array where the column is a string (typeChanges: refuse)`)

	got = loadTable(nil, kinetl.Allow, `{"x":"s"}`, `{"x":{}}`, `{"x":{"y":1}}`, `{"x":1.50}`, `{"x":true}`)
	got.check(t, "x", kinetl.JSON, `"s"`, "{}", `{"y":1}`, "1.5", "true")
	got.checkRefused(t)
}

func TestEmptyObjectsAndArraysDecideNoType(t *testing.T) {
	loadTable(nil, kinetl.Refuse, `{"x":{ }}`, `{"x":[]}`).check(t, "x", kinetl.Empty, "{}", "[]")
	loadTable(nil, kinetl.Refuse, `{"x":[]}`, `{"x":true}`).check(t, "x", kinetl.Bool, "NULL", "true")
	loadTable(nil, kinetl.Refuse, `{"x":[ ]}`, `{"x":[1]}`, `{"x":"s"}`).check(t, "x", kinetl.JSON, "[]", "[1]", `"s"`)
	capped := kinetl.Schema{{Name: "x", Class: kinetl.Int53, Cap: true}}
	loadTable(capped, kinetl.Allow, `{"x":{}}`, `{"x":1}`).check(t, "x", kinetl.Int53, "NULL", "1")
}

func TestT9KeysThatAreNoNames(t *testing.T) {
	long := strings.Repeat("k", 5000)
	got := loadTable(nil, kinetl.Refuse, `{"":1," ":2,"a.b":3,"`+long+`":4}`)
	for name, want := range map[string]string{"_": "1", " ": "2", "a.b": "3", long: "4"} {
		got.check(t, name, kinetl.Int53, want)
	}
	loadTable(nil, kinetl.Refuse, `{"a\u0000":1}`).checkRefused(t, `key "a\u0000" contains a NUL character, which no column name can`)
}

func TestTwoKeysInOneColumnAreRefused(t *testing.T) {
	for payload, reason := range map[string]string{
		`{"a":1,"a":1}`:                        `duplicate key "a": column "a" has a value already`,
		`{"Ab":1,"aB":2}`:                      `duplicate key "aB": column "Ab" has a value already`,
		`{"a":null,"A":2}`:                     `duplicate key "A": column "a" has a value already`,
		`{"a":1,"\u0061":null}`:                `duplicate key "a": column "a" has a value already`,
		`{"":1,"_":2}`:                         `duplicate key "_": column "_" has a value already`,
		`{"_OPENETL_ID":1,"_openetl_id_":"x"}`: `duplicate key "_openetl_id_": column "_OPENETL_ID_" has a value already`,
	} {
		got := loadTable(nil, kinetl.Refuse, payload, `{"z":1}`)
		got.checkRefused(t, reason)
		got.check(t, "z", kinetl.Int53, "1")
		if len(got.schema) != 1 {
			t.Errorf("%s left columns behind: %+v", payload, got.schema)
		}
	}
	// Engines fold ASCII only, so these are two columns.
	got := loadTable(nil, kinetl.Refuse, `{"\u00e4":1,"\u00c4":2}`)
	got.check(t, "\u00e4", kinetl.Int53, "1")
	got.check(t, "\u00c4", kinetl.Int53, "2")
}

func TestT11FieldsNamedLikeMetadata(t *testing.T) {
	for _, mode := range []kinetl.MetadataMode{kinetl.MetadataColumns, kinetl.MetadataObject, kinetl.MetadataNone} {
		rows, schema, reasons := load(kinetl.NewBuilder(nil, kinetl.Refuse, mode), []string{`{"_kinesis_sequence":"mine","KinesisMetadata":2,"_openetl_id":3}`})
		got := table{schema: schema, rows: rowsOf(rows, schema), reasons: reasons}
		got.checkRefused(t)
		got.check(t, "_kinesis_sequence_", kinetl.String, "mine")
		got.check(t, "KinesisMetadata_", kinetl.Int53, "2")
		got.check(t, "_openetl_id_", kinetl.Int53, "3")
	}
}

func TestT17PayloadsThatAreNoObjects(t *testing.T) {
	got := loadTable(nil, kinetl.Refuse, `"FT109918"`, `1.50`, `true`, `null`, `[1, 2]`, ` [ ] `, `{}`, ``, `{"value":"s"}`)
	got.check(t, "value", kinetl.JSON, `"FT109918"`, "1.5", "true", "null", "[1, 2]", "[]", "NULL", `"s"`)
	got.checkRefused(t, "empty payload")
}

func TestNamesAreTheTablesElseTheFirstSpelling(t *testing.T) {
	table := kinetl.Schema{{Name: "Price", Class: kinetl.Int53}, {Name: "untouched", Class: kinetl.Bool}}
	got := loadTable(table, kinetl.Refuse, `{"PRICE":null,"NEW":null}`, `{"price":1.5,"New":"x"}`, `{"pRICE":2,"nEW":"y"}`)
	got.check(t, "Price", kinetl.Double, "NULL", "1.5", "2")
	got.check(t, "New", kinetl.String, "NULL", "x", "y")
	if len(got.schema) != 2 {
		t.Errorf("schema is %+v", got.schema)
	}
}

// R28: what a column that kinetl did not make can't hold is a dead letter.
func TestCappedColumns(t *testing.T) {
	table := kinetl.Schema{{Name: "price", Class: kinetl.Int53, Cap: true, Native: "INTEGER"}, {Name: "note", Class: kinetl.Text, Cap: true, Native: "VARCHAR"}}
	got := loadTable(table, kinetl.Allow, `{"price":2.5}`, `{"price":2.0,"note":1.0}`, `{"price":"x"}`, `{"note":"s"}`, `{"note":[1, 2]}`, `{"note":false}`, `{"note":{}}`)
	got.checkRefused(t,
		`field "price": 2.5 does not fit column "price" INTEGER, which kinetl did not make`,
		`field "price": "x" does not fit column "price" INTEGER, which kinetl did not make`)
	got.check(t, "price", kinetl.Int53, "2", "NULL", "NULL", "NULL", "NULL")
	got.check(t, "note", kinetl.Text, "1", "s", "[1, 2]", "false", "{}")
	if c := got.schema[0]; !c.Cap || c.Native != "INTEGER" {
		t.Errorf("the column lost its cap: %+v", c)
	}
}

// A refused record must not change the table: no column, no widened class, no value
// and no spelling of it stays.
func TestAbortedRowsLeaveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payloads := rapid.SliceOfN(objects(), 0, 8).Draw(t, "records")
		aborted := rapid.SliceOfN(objects(), 1, 4).Draw(t, "aborted")
		plain := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone)
		other := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone)
		decoder := codec.NewJSON()
		for i, payload := range payloads {
			abort := func() {
				if decoder.Decode([]byte(strings.ToUpper(`{"N":1,"Q":"x"}`)), other) != nil {
					t.Fatal("the aborted record should decode")
				}
				other.AbortRow()
				_ = decoder.Decode([]byte(aborted[i%len(aborted)]), other)
				other.AbortRow()
			}
			abort() // may make room, which stays for the next row
			before := other.Bytes()
			abort()
			if other.Bytes() != before {
				t.Fatalf("aborted rows hold %d bytes", other.Bytes()-before)
			}
			for _, b := range []*kinetl.Builder{plain, other} {
				if decoder.Decode([]byte(payload), b) != nil || b.EndRow(&kinetl.Record{Sequence: "1"}, testShard) != nil {
					b.AbortRow()
				}
			}
		}
		_ = decoder.Decode([]byte(aborted[0]), other) // Seal drops a row that was not ended
		rowsA, a, _ := plain.Seal()
		rowsB, b, _ := other.Seal()
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("schema %v, with aborted rows %v", a, b)
		}
		if x, y := fmt.Sprint(rowsOf(rowsA, a)), fmt.Sprint(rowsOf(rowsB, b)); x != y {
			t.Fatalf("rows %s, with aborted rows %s", x, y)
		}
	})
}

var testRecord = kinetl.Record{
	Sequence: "49590338271490256608559692538361571095921575989136588898", Sub: 7, PartitionKey: "user \"1\"",
	Arrived: time.Date(2026, 3, 1, 12, 30, 45, 123e6, time.UTC),
}

func oneRow(t *testing.T, schema kinetl.Schema, mode kinetl.MetadataMode) (map[string]string, table) {
	t.Helper()
	b := kinetl.NewBuilder(schema, kinetl.Refuse, mode)
	if err := codec.NewJSON().Decode([]byte(`{"a":1}`), b); err != nil {
		t.Fatal(err)
	}
	if err := b.EndRow(&testRecord, testShard); err != nil {
		t.Fatal(err)
	}
	rows, sealed, ids := b.Seal()
	if len(ids) != 1 || ids[0] != (kinetl.RowID{Sequence: testRecord.Sequence, Sub: 7}) {
		t.Errorf("row ids %+v", ids)
	}
	got := table{schema: sealed, rows: rowsOf(rows, sealed)}
	return got.rows[0], got
}

// R1: the id depends on everything that tells one record from another.
func wantID() string {
	sum := sha256.Sum256([]byte(testShard.Stream + "\n1700000000\n" + testShard.Shard + "\n" + testRecord.Sequence + "\n7"))
	return hex.EncodeToString(sum[:16])
}

func TestMetadataColumns(t *testing.T) {
	_, got := oneRow(t, nil, kinetl.MetadataColumns)
	got.check(t, "a", kinetl.Int53, "1")
	got.check(t, "_kinesis_shard", kinetl.String, testShard.Shard)
	got.check(t, "_kinesis_sequence", kinetl.String, testRecord.Sequence)
	got.check(t, "_kinesis_arrival", kinetl.Timestamp, "2026-03-01T12:30:45.123Z")
	got.check(t, "_kinesis_partition_key", kinetl.String, testRecord.PartitionKey)
	got.check(t, "_openetl_id", kinetl.String, wantID())
	if len(got.schema) != 6 || len(wantID()) != 32 {
		t.Errorf("schema %+v", got.schema)
	}
	_, got = oneRow(t, nil, kinetl.MetadataColumnsStream)
	got.check(t, "_kinesis_stream", kinetl.String, "orders")
	if row, _ := oneRow(t, nil, kinetl.MetadataNone); len(row) != 1 {
		t.Errorf("row without metadata is %v", row)
	}
}

func TestMetadataObject(t *testing.T) {
	asJSON := `{"stream":"orders","shardId":"shardId-000000000003","approximateArrival":"2026-03-01T12:30:45.123Z","partitionKey":"user \"1\"","sequenceNumber":"` +
		testRecord.Sequence + `","subSequenceNumber":7,"shardedSequenceNumber":"` + testRecord.Sequence + `00000000000000000007"}`
	row, got := oneRow(t, nil, kinetl.MetadataObject)
	var object, want map[string]any
	if json.Unmarshal([]byte(row["kinesisMetadata"]), &object) != nil || json.Unmarshal([]byte(asJSON), &want) != nil || !reflect.DeepEqual(object, want) {
		t.Errorf("kinesisMetadata is %s", row["kinesisMetadata"])
	}
	if got.classes()["kinesismetadata"] != kinetl.Metadata {
		t.Errorf("schema %+v", got.schema)
	}
	got.check(t, "_openetl_id", kinetl.String, wantID())
	for _, class := range []kinetl.Class{kinetl.JSON, kinetl.Text} {
		_, got := oneRow(t, kinetl.Schema{{Name: "KINESISMETADATA", Class: class, Cap: true}}, kinetl.MetadataObject)
		got.check(t, "KINESISMETADATA", class, asJSON)
	}
}

func TestMetadataInColumnsThatSomebodyMade(t *testing.T) {
	_, got := oneRow(t, kinetl.Schema{{Name: "_kinesis_arrival", Class: kinetl.Text, Cap: true}, {Name: "_KINESIS_SHARD", Class: kinetl.JSON, Cap: true}}, kinetl.MetadataColumns)
	got.check(t, "_kinesis_arrival", kinetl.Text, "2026-03-01T12:30:45.123Z")
	got.check(t, "_KINESIS_SHARD", kinetl.JSON, `"`+testShard.Shard+`"`)

	b := kinetl.NewBuilder(kinetl.Schema{{Name: "_kinesis_sequence", Class: kinetl.Int64, Cap: true, Native: "BIGINT"}}, kinetl.Refuse, kinetl.MetadataColumns)
	err := b.EndRow(&testRecord, testShard)
	if err == nil || !strings.Contains(err.Error(), `column "_kinesis_sequence" of the table is int64 BIGINT`) || b.Rows() != 0 {
		t.Errorf("%d rows, error %v", b.Rows(), err)
	}
}

func TestRowsOfSeveralShardsKeepTheirOrder(t *testing.T) {
	b := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataColumns)
	for i := range 6 {
		if err := b.EndRow(&kinetl.Record{Sequence: fmt.Sprint(10 + i)}, testShard.Sibling(fmt.Sprint("s", i/2%2))); err != nil {
			t.Fatal(err)
		}
	}
	rows, schema, ids := b.Seal()
	got := table{schema: schema, rows: rowsOf(rows, schema)}
	got.check(t, "_kinesis_shard", kinetl.String, "s0", "s0", "s1", "s1", "s0", "s0")
	got.check(t, "_kinesis_arrival", kinetl.Timestamp, "NULL", "NULL", "NULL", "NULL", "NULL", "NULL")
	for i, id := range ids {
		if id.Sequence != fmt.Sprint(10+i) {
			t.Errorf("row %d is of record %s", i, id.Sequence)
		}
	}
	if rows, schema, ids := b.Seal(); rows != nil || schema != nil || ids != nil || b.Rows() != 0 {
		t.Error("a sealed builder is not empty")
	}
}

func TestErrorsStayShort(t *testing.T) {
	long := strings.Repeat("\u00e4", 100_000)
	got := loadTable(kinetl.Schema{{Name: long, Class: kinetl.Int53, Cap: true}}, kinetl.Refuse, `{"`+long+`":"`+long+`"}`)
	if len(got.reasons) != 1 || len(got.reasons[0]) > 500 || !strings.Contains(got.reasons[0], "does not fit") {
		t.Errorf("reasons %.600q", got.reasons)
	}
}
