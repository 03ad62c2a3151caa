package duckdb

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/kinetl/kinetl"
)

var shard = kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", Created: 1700000000, Shard: "shardId-000000000000"}

func at(n int) kinetl.Position { return kinetl.At(strconv.Itoa(n), 0) }

// textPart is a part of text columns, with the sequence numbers 1, 2, ... A nil
// cell is NULL.
func textPart(after, through kinetl.Position, schema kinetl.Schema, rows ...[]any) kinetl.Part {
	var fields []arrow.Field
	for _, c := range schema {
		fields = append(fields, arrow.Field{Name: c.Name, Type: c.Class.Arrow(), Nullable: true})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	p := kinetl.Part{Shard: shard, After: after, Through: through, Schema: schema}
	for i, row := range rows {
		p.RowIDs = append(p.RowIDs, kinetl.RowID{Sequence: strconv.Itoa(i + 1)})
		for c, v := range row {
			switch v := v.(type) {
			case nil:
				b.Field(c).AppendNull()
			case string:
				b.Field(c).(*array.StringBuilder).Append(v)
			case int:
				b.Field(c).(*array.Int64Builder).Append(int64(v))
			case bool:
				b.Field(c).(*array.BooleanBuilder).Append(v)
			case float64:
				b.Field(c).(*array.Float64Builder).Append(v)
			case decimal128.Num:
				b.Field(c).(*array.Decimal128Builder).Append(v)
			}
		}
	}
	p.Rows = b.NewRecordBatch()
	return p
}

// worker prepares the table orders and claims the shard.
func (h *harness) worker(t *testing.T, want kinetl.Schema) (kinetl.Destination, kinetl.Schema) {
	t.Helper()
	d := h.Open(t, "app", false)
	t.Cleanup(func() { d.Close() })
	schema, err := d.Prepare(context.Background(), "orders", want, kinetl.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Claim(context.Background(), "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err != nil {
		t.Fatal(err)
	}
	return d, schema
}

func wantRefused(t *testing.T, d kinetl.Destination, p kinetl.Part, want ...int) {
	t.Helper()
	_, err := d.Commit(context.Background(), "orders", []kinetl.Part{p})
	var rejected *kinetl.RejectedError
	if !errors.As(err, &rejected) {
		t.Fatalf("commit: %v, want *RejectedError", err)
	}
	var got []string
	for _, r := range rejected.Rows {
		got = append(got, r.Position.String())
		if strings.Contains(r.Reason, "\n") || r.Reason == "" {
			t.Errorf("reason %q is not one line", r.Reason)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("refused %v, want %v", rejected.Rows, want)
	}
}

// R13: constraints of the table name no row; the search finds each one all the same.
func TestRowsThatConstraintsRefuse(t *testing.T) {
	h := newHarness(t, "main")
	h.exec(t, `CREATE TABLE orders (id BIGINT UNIQUE, amount BIGINT CHECK (amount >= 0), doc JSON)`)
	h.exec(t, `INSERT INTO orders VALUES (7, 0, NULL)`)
	d, schema := h.worker(t, nil)
	rows := make([][]any, 300)
	for i := range rows {
		rows[i] = []any{100 + i, 1, `{"a":1}`}
	}
	stored, bad := textPart(kinetl.Oldest, at(300), schema, rows...), rows
	bad[10] = []any{7, 1, "{}"}    // in the table already
	bad[20] = []any{119, 1, "{}"}  // twice in the batch: the second is refused
	bad[150] = []any{900, -1, nil} // CHECK
	bad[299] = []any{901, 1, `{"a":`}
	wantRefused(t, d, textPart(kinetl.Oldest, at(300), schema, bad...), 11, 21, 151, 300)

	if got := h.read(t, "orders", schema); len(got.Rows) != 1 || got.Watermarks[shard] != kinetl.Oldest {
		t.Fatalf("%d rows stored at %q, want nothing stored", len(got.Rows)-1, got.Watermarks[shard])
	}
	if _, err := d.Commit(context.Background(), "orders", []kinetl.Part{stored}); err != nil {
		t.Fatal(err)
	}
}

// R13: a NOT NULL that Prepare can't drop refuses rows and does not ask for Prepare
// again and again.
func TestNotNullThatStays(t *testing.T) {
	h := newHarness(t, "main")
	h.exec(t, `CREATE TABLE orders (id VARCHAR PRIMARY KEY, pinned VARCHAR NOT NULL, free VARCHAR, filled BIGINT NOT NULL DEFAULT 5)`)
	h.exec(t, `CREATE INDEX pin ON orders (pinned)`)
	d, schema := h.worker(t, nil)
	schema = schema[:3]
	wantRefused(t, d, textPart(kinetl.Oldest, at(4), schema, []any{"a", "x", nil}, []any{nil, "x", "y"}, []any{"b", nil, "y"}, []any{"c", "x", "y"}), 2, 3)
	if _, err := d.Commit(context.Background(), "orders", []kinetl.Part{textPart(kinetl.Oldest, at(1), schema, []any{"a", "x", nil})}); err != nil {
		t.Fatal(err)
	}
}

// R28: what each type of somebody else's takes, and what it would change.
func TestForeignTypes(t *testing.T) {
	for _, c := range []struct {
		typ       string
		good, bad []string
	}{
		{"TIMESTAMP", []string{"2026-01-02T03:04:05.678901Z", "2026-01-02 03:04:05", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"}, []string{"2026-01-02T03:04:05.6789012Z", "2026-01-02T03:04:05+02:00", "never"}},
		{"TIMESTAMPTZ", []string{"2026-01-02T03:04:05.678901+02:00", "2026-01-02T03:04:05Z"}, []string{"2026-01-02T03:04:05.0000001Z", "x"}},
		{"TIMESTAMP_S", []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"}, []string{"2026-01-02T03:04:05.5Z"}},
		{"DATE", []string{"2026-01-02", "9999-12-31"}, []string{"2026-01-02T00:00:01Z", "2026-13-01"}},
		{"TIME", []string{"03:04:05.678901"}, []string{"03:04:05.6789012", "25:00:00"}},
		{"UUID", []string{"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, []string{"6ba7b810", ""}},
		{"ENUM('a', 'b')", []string{"a"}, []string{"A", "c"}},
		{"BIGINT[]", []string{"[1,2]", "[]", "[null]"}, []string{"[1,2.5]", `["x"]`, "1", "{}"}},
		{"STRUCT(a DOUBLE, b VARCHAR)", []string{`{"a":1,"b":"x"}`, `{"a":1.5,"b":null}`}, []string{`{"a":"x","b":"y"}`, `{"a":1,"b":"x","c":2}`, "[]"}},
		{"BLOB", []string{`\x41`, "plain"}, nil},
		{"UTINYINT", nil, nil},
	} {
		t.Run(c.typ, func(t *testing.T) {
			h := newHarness(t, "main")
			h.exec(t, "CREATE TABLE orders (theirs "+c.typ+")")
			d, schema := h.worker(t, nil)
			if c.typ == "UTINYINT" {
				if schema[0].Class != kinetl.Decimal || schema[0].Native != "UTINYINT" || !schema[0].Cap {
					t.Fatalf("column %+v, want a decimal cap", schema[0])
				}
				return
			}
			rows := [][]any{{nil}}
			for _, v := range c.good {
				rows = append(rows, []any{v})
			}
			for _, v := range c.bad {
				wantRefused(t, d, textPart(kinetl.Oldest, at(9), schema, append(rows, []any{v})...), len(rows)+1)
			}
			if _, err := d.Commit(context.Background(), "orders", []kinetl.Part{textPart(kinetl.Oldest, at(9), schema, rows...)}); err != nil {
				t.Fatal(err)
			}
			if c.typ == "BLOB" {
				var same bool
				if err := h.look.db.QueryRow(`SELECT bool_and(theirs IS NULL OR theirs = encode('\x41') OR theirs = encode('plain')) FROM orders`).Scan(&same); err != nil || !same {
					t.Fatalf("bytes of the text were changed (%v)", err)
				}
			}
		})
	}
}

// R28: a value that one column refuses is found among columns that take theirs, and a
// generated column between others does no harm. (DuckDB takes the columns of a view
// on Arrow data for one another if a statement does not use all.)
func TestRefusedAmongOtherColumns(t *testing.T) {
	h := newHarness(t, "main")
	h.exec(t, `CREATE TABLE orders (id BIGINT, flag BOOLEAN, g VARCHAR GENERATED ALWAYS AS ('g') VIRTUAL, name VARCHAR, day DATE, hour TIME, price DOUBLE)`)
	d, schema := h.worker(t, nil)
	rows := [][]any{
		{1, true, nil, "a", "2026-01-01", nil, 1.5},
		{2, nil, nil, "b", "soon", "03:04:05", nil},
		{3, false, nil, nil, nil, "25:00", 2.5},
		{4, false, nil, "d", nil, nil, nil},
	}
	wantRefused(t, d, textPart(kinetl.Oldest, at(4), schema, rows...), 2, 3)
	p := textPart(kinetl.Oldest, at(4), schema, rows[0], rows[3])
	p.RowIDs = []kinetl.RowID{{Sequence: "1"}, {Sequence: "4"}}
	if _, err := d.Commit(context.Background(), "orders", []kinetl.Part{p}); err != nil {
		t.Fatal(err)
	}
	got := h.read(t, "orders", schema).Rows
	if len(got) != 2 || got[0].Cells["name"] != "a" || got[0].Cells["day"] != "2026-01-01" || got[0].Cells["price"] != "1.5" || got[1].Cells["name"] != "d" || got[1].Cells["id"] != "4" {
		t.Fatalf("rows %v", got)
	}
}

// R28: a generated column takes no value; rows that leave it out are stored.
func TestGeneratedColumn(t *testing.T) {
	h := newHarness(t, "main")
	h.exec(t, `CREATE TABLE orders (a VARCHAR, g VARCHAR GENERATED ALWAYS AS (upper(a)) VIRTUAL)`)
	d, schema := h.worker(t, kinetl.Schema{{Name: "g", Class: kinetl.String}})
	wantRefused(t, d, textPart(kinetl.Oldest, at(2), schema, []any{"x", nil}, []any{"x", "X"}), 2)
	if _, err := d.Commit(context.Background(), "orders", []kinetl.Part{textPart(kinetl.Oldest, at(2), schema, []any{"x", nil})}); err != nil {
		t.Fatal(err)
	}
	if got := h.read(t, "orders", schema).Rows; len(got) != 1 || got[0].Cells["g"] != "X" {
		t.Fatalf("rows %v", got)
	}
}

// FuzzFitsDecimal: the answer is that of exact arithmetic.
func FuzzFitsDecimal(f *testing.F) {
	for _, s := range []string{"0", "-0", "1", "1.50", "0.001", "1e2", "12.5E-1", "99999999.99", "100000000", "-1e-3", "0e999999999999", "1e-999999999999"} {
		f.Add(s, uint8(10), uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, p, s uint8) {
		p = p%38 + 1
		s = s % (p + 1)
		got := fitsDecimal(text, strconv.Itoa(int(p)), strconv.Itoa(int(s)))
		if !jsonNumber.MatchString(text) || len(text) > 100 {
			return
		}
		v, ok := new(big.Rat).SetString(text)
		if !ok {
			return // an exponent too large for exact arithmetic
		}
		scaled := v.Mul(v, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(s)), nil)))
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(p)), nil)
		if want := scaled.IsInt() && scaled.Num().CmpAbs(limit) < 0; got != want {
			t.Fatalf("%s in DECIMAL(%d,%d): %v, want %v", text, p, s, got, want)
		}
	})
}
