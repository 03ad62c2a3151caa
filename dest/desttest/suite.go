package desttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/kinetl/kinetl"
)

// Harness gives the suite one fresh, empty set of tables. Fields that are nil are
// capabilities that the destination lacks; the cases that need them are skipped.
type Harness struct {
	// Open makes a worker's handle. The suite closes it.
	Open func(t *testing.T, application string, adopt bool) kinetl.Destination

	// Read returns what is stored. Cells are rendered as Text renders the class
	// that schema has for the column; rows come in the order of their insertion.
	Read func(t *testing.T, table string, schema kinetl.Schema) Contents

	// AddColumn adds a column to an existing table as somebody else would. Type is
	// standard SQL: BIGINT, INTEGER, REAL, DECIMAL(10,2), VARCHAR, DATE.
	AddColumn func(t *testing.T, table, name, typ string, notNull bool)

	// Unalterable makes the engine refuse to change a column's type.
	Unalterable func(t *testing.T, table, column string)

	// FailStatement makes the nth statement from now fail in the engine, the
	// COMMIT included. Zero calls it off.
	FailStatement func(n int)

	// LoseCommit makes the next COMMIT succeed and report an error.
	LoseCommit func()

	// LongName is the most bytes of a table's or column's name; default 200.
	LongName int
}

// Run is the conformance suite: what the engine relies on in every Destination that
// keeps watermarks.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range slices.Concat(watermarkCases, deleteCases, rowCases, schemaCases, faultCases) {
		t.Run(c.name, func(t *testing.T) {
			c.run(&suite{T: t, Harness: open(t), table: "orders"})
		})
	}
}

type testCase struct {
	name string
	run  func(s *suite)
}

type suite struct {
	*testing.T
	Harness
	table string
}

var (
	streamARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
	shard0    = kinetl.ShardID{Stream: streamARN, Created: 1700000000, Shard: "shardId-000000000000"}
	shard1    = shard0.Sibling("shardId-000000000001")
	shard2    = shard0.Sibling("shardId-000000000002")
	letters   = kinetl.Schema{{Name: "n", Class: kinetl.Int53}, {Name: "who", Class: kinetl.String}}
)

// cells is one row: column name -> value as Text renders it.
type cells = map[string]string

func (s *suite) worker() kinetl.Destination { return s.workerOf("app", false) }

func (s *suite) workerOf(application string, adopt bool) kinetl.Destination {
	s.Helper()
	d := s.Open(s.T, application, adopt)
	s.Cleanup(func() {
		if err := d.Close(); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	return d
}

func at(n int) kinetl.Position { return kinetl.At(strconv.Itoa(n), 0) }

// part is rows with the sequence numbers first, first+1, ...
func part(shard kinetl.ShardID, after, through kinetl.Position, schema kinetl.Schema, first int, rows ...cells) kinetl.Part {
	p := kinetl.Part{Shard: shard, After: after, Through: through, Schema: schema}
	if len(rows) == 0 {
		return p
	}
	fields := make([]arrow.Field, len(schema))
	for i, c := range schema {
		fields[i] = arrow.Field{Name: c.Name, Type: c.Class.Arrow(), Nullable: true}
	}
	b := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema(fields, nil))
	defer b.Release()
	for r, row := range rows {
		p.RowIDs = append(p.RowIDs, kinetl.RowID{Sequence: strconv.Itoa(first + r)})
		for i, c := range schema {
			text, ok := row[c.Name]
			if !ok {
				b.Field(i).AppendNull()
				continue
			}
			if err := appendText(b.Field(i), text); err != nil {
				panic(fmt.Sprintf("desttest: value %q of column %q: %v", text, c.Name, err))
			}
		}
	}
	p.Rows = b.NewRecordBatch()
	return p
}

func appendText(b array.Builder, text string) (err error) {
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(text == "true")
	case *array.Int64Builder:
		var v int64
		v, err = strconv.ParseInt(text, 10, 64)
		b.Append(v)
	case *array.Float64Builder:
		var v float64
		v, err = strconv.ParseFloat(text, 64)
		b.Append(v)
	case *array.Decimal128Builder:
		v, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return errors.New("no integer")
		}
		b.Append(decimal128.FromBigInt(v))
	case *array.StringBuilder:
		b.Append(text)
	case *array.TimestampBuilder:
		var v time.Time
		v, err = time.Parse(time.RFC3339Nano, text)
		b.Append(arrow.Timestamp(v.UnixMicro()))
	default:
		err = b.AppendValueFromString(text)
	}
	return err
}

func (s *suite) prepare(d kinetl.Destination, want kinetl.Schema, changes kinetl.TypeChanges) kinetl.Schema {
	s.Helper()
	got, err := d.Prepare(context.Background(), s.table, want, changes)
	if err != nil {
		s.Fatalf("prepare: %v", err)
	}
	return got
}

func (s *suite) claim(d kinetl.Destination, claims ...kinetl.Claim) kinetl.Claimed {
	s.Helper()
	got, err := d.Claim(context.Background(), s.table, claims)
	if err != nil {
		s.Fatalf("claim: %v", err)
	}
	return got
}

func (s *suite) commit(d kinetl.Destination, parts ...kinetl.Part) kinetl.CommitReport {
	s.Helper()
	got, err := d.Commit(context.Background(), s.table, parts)
	if err != nil {
		s.Fatalf("commit: %v", err)
	}
	return got
}

// stored commits and expects that nothing was fenced.
func (s *suite) stored(d kinetl.Destination, parts ...kinetl.Part) {
	s.Helper()
	if got := s.commit(d, parts...); len(got.Fenced) > 0 {
		s.Fatalf("commit: fenced %v, want nothing fenced", got.Fenced)
	}
}

func (s *suite) start(d kinetl.Destination, shards ...kinetl.ShardID) {
	s.Helper()
	var claims []kinetl.Claim
	for _, shard := range shards {
		claims = append(claims, kinetl.Claim{Shard: shard, Start: kinetl.Oldest})
	}
	s.claim(d, claims...)
}

// wantRows compares the rows in their order.
func (s *suite) wantRows(schema kinetl.Schema, want ...cells) {
	s.Helper()
	got := s.Read(s.T, s.table, schema).Rows
	if len(got) != len(want) {
		s.Fatalf("%d rows stored, want %d", len(got), len(want))
	}
	for i := range want {
		if diff := differ(schema, got[i].Cells, want[i]); diff != "" {
			s.Fatalf("row %d: %s", i, diff)
		}
	}
}

// differ compares two rows. Names match as Fold has it: a table has plain ones in its
// engine's own case.
func differ(schema kinetl.Schema, got, want cells) string {
	got, want = folded(got), folded(want)
	names := slices.Sorted(maps.Keys(want))
	for name := range got {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		g, gok := got[name]
		w, wok := want[name]
		class := kinetl.String
		if i := schema.Index(name); i >= 0 {
			class = schema[i].Class
		}
		if gok != wok || gok && !same(class, g, w) {
			return fmt.Sprintf("column %q is %s, want %s", name, show(g, gok), show(w, wok))
		}
	}
	return ""
}

func folded(row cells) cells {
	out := cells{}
	for name, text := range row {
		out[kinetl.Fold(name)] = text
	}
	return out
}

func show(text string, ok bool) string {
	if !ok {
		return "NULL"
	}
	return strconv.Quote(text)
}

// same compares exactly, but for what some engines do not keep of JSON text: the
// spaces, the order of keys, and how a number is written.
func same(class kinetl.Class, a, b string) bool {
	switch class {
	case kinetl.JSON, kinetl.Empty, kinetl.Metadata:
		av, aok := decodeJSON(a)
		bv, bok := decodeJSON(b)
		return aok && bok && reflect.DeepEqual(av, bv)
	}
	return a == b
}

func decodeJSON(text string) (v any, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err := d.Decode(&v)
	return valued(v), err == nil
}

// valued is a JSON value with one text for each number.
func valued(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, ok := new(big.Rat).SetString(v.String()); ok {
			return json.Number(n.RatString())
		}
	case []any:
		for i := range v {
			v[i] = valued(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = valued(v[key])
		}
	}
	return v
}

func (s *suite) wantWatermark(shard kinetl.ShardID, want kinetl.Position) {
	s.Helper()
	got, ok := s.Read(s.T, s.table, nil).Watermarks[shard]
	if want == "" && ok {
		s.Fatalf("%s: watermark %s stored, want no row", shard, got)
	}
	if got != want {
		s.Fatalf("%s: watermark %q, want %q", shard, got.String(), want.String())
	}
}

func (s *suite) wantFenced(got kinetl.CommitReport, want map[kinetl.ShardID]kinetl.Position) {
	s.Helper()
	if !maps.Equal(got.Fenced, want) {
		s.Fatalf("fenced %v, want %v", got.Fenced, want)
	}
}

func (s *suite) need(capability bool, what string) {
	s.Helper()
	if !capability {
		s.Skipf("the harness can't %s", what)
	}
}

// people is n rows of the schema letters.
func people(first, n int, who string) []cells {
	rows := make([]cells, n)
	for i := range rows {
		rows[i] = cells{"n": strconv.Itoa(first + i), "who": who}
	}
	return rows
}

// eventually repeats a call that other workers' transactions may fail, as the
// engine does, until it gives an answer.
func eventually[T any](t *testing.T, call func() (T, error)) T {
	t.Helper()
	var err error
	for range 1000 {
		var got T
		if got, err = call(); err == nil {
			return got
		}
	}
	t.Errorf("still failing after 1000 tries: %v", err)
	var none T
	return none
}
