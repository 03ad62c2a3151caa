package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kinetl/kinetl"
)

var shard = kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", Created: 1700000000, Shard: "shardId-000000000000"}

func at(n int) kinetl.Position { return kinetl.At(strconv.Itoa(n), 0) }

// textPart is a part with the sequence numbers 1, 2, ... A nil cell is NULL.
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
			case arrow.Timestamp:
				b.Field(c).(*array.TimestampBuilder).Append(v)
			}
		}
	}
	p.Rows = b.NewRecordBatch()
	return p
}

// worker prepares the table orders and claims the shard.
func (h *harness) worker(t *testing.T, want kinetl.Schema) (*Destination, kinetl.Schema) {
	t.Helper()
	d := h.open(t, Options{Application: "app"})
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

func wantRefused(t *testing.T, d kinetl.Destination, p kinetl.Part, want ...int) *kinetl.RejectedError {
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
	return rejected
}

func commitAll(t *testing.T, d kinetl.Destination, p kinetl.Part) {
	t.Helper()
	report, err := d.Commit(context.Background(), "orders", []kinetl.Part{p})
	if err != nil || len(report.Fenced) > 0 {
		t.Fatalf("commit: %v, fenced %v", err, report.Fenced)
	}
}

// R13: each row that a constraint, a trigger or a type refuses is found, also where the
// server does not say which it was, and nothing is stored.
func TestRowsThatTheServerRefuses(t *testing.T) {
	const row = "(id bigint, amount bigint, doc jsonb)"
	for _, c := range []struct {
		name, ddl string
		bad       map[int][]any
	}{
		{"check", `CREATE TABLE orders (id bigint, amount bigint CHECK (amount >= 0), doc jsonb)`,
			map[int][]any{10: {1, -1, nil}, 299: {2, -5, nil}}},
		{"unique", `CREATE TABLE orders (id bigint UNIQUE, amount bigint, doc jsonb); INSERT INTO orders VALUES (7)`,
			map[int][]any{10: {7, 1, nil}, 20: {119, 1, nil}, 250: {100, 1, nil}}},
		{"deferred", `CREATE TABLE orders (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, amount bigint, doc jsonb); INSERT INTO orders VALUES (7)`,
			map[int][]any{10: {7, 1, nil}, 20: {119, 1, nil}}},
		{"foreign key", `CREATE TABLE ids (id bigint PRIMARY KEY); INSERT INTO ids SELECT generate_series(100, 399);
			CREATE TABLE orders (id bigint REFERENCES ids DEFERRABLE INITIALLY DEFERRED, amount bigint, doc jsonb)`,
			map[int][]any{0: {1, 1, nil}, 255: {2, 1, nil}, 256: {3, 1, nil}}},
		{"trigger before", `CREATE TABLE orders ` + row + `;
			CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF NEW.amount = 13 THEN RAISE E'bad\nluck'; END IF; RETURN NEW; END$$;
			CREATE TRIGGER no BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no()`,
			map[int][]any{77: {1, 13, nil}}},
		{"trigger after", `CREATE TABLE orders ` + row + `;
			CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF NEW.amount = 13 THEN RAISE 'bad luck'; END IF; RETURN NULL; END$$;
			CREATE TRIGGER no AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no()`,
			map[int][]any{0: {1, 13, nil}, 77: {1, 13, nil}, 299: {1, 13, nil}}},
		{"trigger of the statement", `CREATE TABLE orders ` + row + `;
			CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF EXISTS (SELECT FROM fresh WHERE amount = 13) THEN RAISE 'bad luck'; END IF; RETURN NULL; END$$;
			CREATE TRIGGER no AFTER INSERT ON orders REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION no()`,
			map[int][]any{100: {1, 13, nil}}},
		{"json", `CREATE TABLE orders ` + row,
			map[int][]any{3: {1, 1, `{"a":`}, 4: {2, 1, `"\ud800"`}, 5: {3, 1, "1e-200000"}, 200: {4, 1, "[1e131072]"}}},
		{"partitions", `CREATE TABLE orders ` + row + ` PARTITION BY RANGE (amount); CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)`,
			map[int][]any{150: {1, 10, nil}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, "public")
			h.exec(t, c.ddl)
			before := h.text(t, "SELECT count(*)::text FROM orders")
			d, schema := h.worker(t, nil)
			good, bad := make([][]any, 300), make([][]any, 300)
			var want []int
			for i := range good {
				good[i] = []any{100 + i, 1, `{"a":1}`}
				bad[i] = good[i]
				if row, is := c.bad[i]; is {
					bad[i], want = row, append(want, i+1)
				}
			}
			wantRefused(t, d, textPart(kinetl.Oldest, at(300), schema, bad...), want...)
			if got := h.read(t, "orders", nil).Watermarks[shard]; got != kinetl.Oldest {
				t.Fatalf("the watermark is %q", got)
			}
			if after := h.text(t, "SELECT count(*)::text FROM orders"); after != before {
				t.Fatalf("%s rows stored, want %s", after, before)
			}
			commitAll(t, d, textPart(kinetl.Oldest, at(300), schema, good...))
		})
	}
}

// FuzzFailedRow: the row is found behind any name of a table, in any language, and what
// is found elsewhere is no row.
func FuzzFailedRow(f *testing.F) {
	for _, name := range []string{"orders", "x, line 3, column y", "COPY a, line 2", "\nCOPY a", "a, b 5"} {
		f.Add(name, uint16(7))
	}
	f.Fuzz(func(t *testing.T, name string, n uint16) {
		if strings.ContainsAny(name, ",\n") {
			failedRow(&pgconn.PgError{Where: "COPY " + name}) // any row will do: it is a hint
			return
		}
		for _, where := range []string{"COPY %s, line %d", "COPY %s, line %d, column j", "COPY %s, Zeile %d, Spalte j: \"1\"", "JSON data, line 1: ...\nCOPY %s, line %d, column j", "PL/pgSQL function no() line 1 at RAISE\nCOPY %s, line %d"} {
			if got := failedRow(&pgconn.PgError{Where: fmt.Sprintf(where, name, n)}); got != int(n) {
				t.Errorf("%q: %d, want %d", fmt.Sprintf(where, name, n), got, n)
			}
		}
		if got := failedRow(&pgconn.PgError{Where: "PL/pgSQL function no() line 1 at RAISE"}); got != 0 {
			t.Errorf("%d, want none", got)
		}
	})
}

// R13: two shards whose rows are good each and not both.
func TestARowThatAnotherShardsRowRefuses(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, `CREATE TABLE orders (id bigint UNIQUE)`)
	d, schema := h.worker(t, nil)
	other := shard.Sibling("shardId-000000000001")
	if _, err := d.Claim(t.Context(), "orders", []kinetl.Claim{{Shard: other, Start: kinetl.Oldest}}); err != nil {
		t.Fatal(err)
	}
	p, q := textPart(kinetl.Oldest, at(2), schema, []any{1}, []any{2}), textPart(kinetl.Oldest, at(2), schema, []any{3}, []any{2})
	q.Shard = other
	_, err := d.Commit(t.Context(), "orders", []kinetl.Part{p, q})
	var rejected *kinetl.RejectedError
	if !errors.As(err, &rejected) || rejected.Shard != other || len(rejected.Rows) != 1 || rejected.Rows[0].Position != at(2) {
		t.Fatalf("commit: %v, want the second row of %s refused", err, other)
	}
}

// R13: NUL, which PostgreSQL has no room for, in text, JSON and keys of JSON. A text
// that only looks like it is stored.
func TestNUL(t *testing.T) {
	h := newHarness(t, "public")
	d, schema := h.worker(t, kinetl.Schema{{Name: "s", Class: kinetl.String}, {Name: "j", Class: kinetl.JSON}})
	good := [][]any{{`\u0000`, `{"a":"\\u0000"}`}, {"", `"\\\\u0000"`}, {nil, "[]"}}
	bad := append(append([][]any{}, good...), []any{"a\x00b", "1"}, []any{"x", `{"a":"\u0000"}`}, []any{"x", `["\\\u0000"]`}, []any{"x", `{"\u0000":1}`}, []any{"\x00", `"\u0000"`})
	r := wantRefused(t, d, textPart(kinetl.Oldest, at(8), schema, bad...), 4, 5, 6, 7, 8)
	for _, row := range r.Rows {
		if !strings.Contains(row.Reason, "U+0000") || row.Column != "" {
			t.Errorf("refused as %+v", row)
		}
	}
	p := textPart(kinetl.Oldest, at(3), schema, good...)
	// A dead letter is not refused, whatever its text.
	p.DeadLetters = []kinetl.DeadLetter{{Sequence: "4", PartitionKey: "k\x00\xff", Reason: "holds \x00", Payload: []byte("\x00\xff")}}
	commitAll(t, d, p)
	got := h.read(t, "orders", schema)
	if len(got.Rows) != 3 || got.Rows[0].Cells["s"] != `\u0000` || got.Rows[0].Cells["j"] != `{"a": "\\u0000"}` || got.Rows[1].Cells["j"] != `"\\\\u0000"` {
		t.Errorf("rows %v", got.Rows)
	}
	if l := got.DeadLetters; len(l) != 1 || l[0].PartitionKey != "k\uFFFD\uFFFD" || l[0].Reason != "holds \uFFFD" || string(l[0].Payload) != "\x00\xff" {
		t.Errorf("dead letters %+v", l)
	}
}

// FuzzHoldsNUL: the answer is that of encoding/json.
func FuzzHoldsNUL(f *testing.F) {
	for _, s := range []string{`"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `{"a":["\u0000\\u0000"]}`, `"\u00000"`, `{"\u0000":1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		if got, want := holdsNUL([]byte(text)), strings.Contains(fmt.Sprint(v), "\x00"); got != want {
			t.Fatalf("%s: %v, want %v", text, got, want)
		}
	})
}

// R13: a NOT NULL that Prepare can't drop refuses rows and does not ask for Prepare
// again and again.
func TestNotNullThatStays(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, `CREATE TABLE parent (pinned text NOT NULL);
		CREATE TABLE orders (id text PRIMARY KEY, free text, filled bigint NOT NULL DEFAULT 5, n bigint GENERATED ALWAYS AS IDENTITY) INHERITS (parent)`)
	h.exec(t, `ALTER TABLE orders OWNER TO postgres`)
	d, schema := h.worker(t, nil)
	schema = kinetl.Schema{schema[schema.Index("id")], schema[schema.Index("pinned")], schema[schema.Index("free")]}
	wantRefused(t, d, textPart(kinetl.Oldest, at(4), schema, []any{"a", "x", nil}, []any{nil, "x", "y"}, []any{"b", "x", "y"}), 2)
	commitAll(t, d, textPart(kinetl.Oldest, at(1), schema, []any{"a", "x", nil}))
	if got := h.text(t, "SELECT id || pinned || filled FROM orders WHERE n > 0"); got != "ax5" {
		t.Errorf("row %s", got)
	}
}

// R13: a row that is too wide for a page is a dead letter, and so is a value that is
// too long for an index.
func TestRowsThatAreTooWide(t *testing.T) {
	h := newHarness(t, "public")
	var schema kinetl.Schema
	var wide, narrow []any
	for i := range 1200 {
		schema = append(schema, kinetl.Column{Name: fmt.Sprintf("c%d", i), Class: kinetl.Int53})
		wide, narrow = append(wide, i), append(narrow, nil)
	}
	narrow[7] = 7
	d, schema := h.worker(t, schema)
	r := wantRefused(t, d, textPart(kinetl.Oldest, at(3), schema, narrow, wide, narrow), 2)
	if !strings.Contains(r.Rows[0].Reason, "row is too big") {
		t.Errorf("refused for %q", r.Rows[0].Reason)
	}
	commitAll(t, d, textPart(kinetl.Oldest, at(2), schema, narrow, narrow))
	h.exec(t, "ALTER TABLE orders ADD COLUMN s text UNIQUE")
	schema, err := d.Prepare(t.Context(), "orders", nil, kinetl.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	schema = schema[1200:]
	var long strings.Builder // not to be compressed
	for random := rand.New(rand.NewPCG(1, 2)); long.Len() < 10_000; {
		long.WriteString(strconv.FormatUint(random.Uint64(), 36))
	}
	wantRefused(t, d, textPart(at(2), at(4), schema, []any{"short"}, []any{long.String()}), 2)
}

// R28: what each type of somebody else's takes, and what it would change.
func TestForeignTypes(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, "SET TimeZone = 'UTC'")
	h.exec(t, "CREATE EXTENSION citext")
	h.exec(t, "CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN even AS integer CHECK (VALUE % 2 = 0)")
	for _, c := range []struct {
		typ       string
		good, bad []string
	}{
		{"timestamp", []string{"2026-01-02T03:04:05.678901Z", "2026-01-02 03:04:05", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-01-02T03:04+00"}, []string{"2026-01-02T03:04:05.6789012Z", "2026-01-02T03:04:05+02:00", "never", "2026-01-02", "2026-01-02T24:00:00", "2026-01-02T03:04:60", ""}},
		{"timestamptz", []string{"2026-01-02T03:04:05.678901+02:00", "2026-01-02t03:04:05z", "2026-01-02T03:04:05.000000000Z", "2026-01-02 03:04:05-1130", "2026-01-02T03:04:05"}, []string{"2026-01-02T03:04:05.0000001Z", "x", "infinity", "2026-01-02T03:04:05+", "2026-01-02T03:04:05.Z", "2026-1-2T03:04:05Z", "0000-01-02T03:04:05Z"}},
		{"timestamptz(0)", []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"}, []string{"2026-01-02T03:04:05.5Z"}},
		{"date", []string{"2026-01-02", "9999-12-31", "1600-02-29"}, []string{"2026-01-02T00:00:01Z", "2026-13-01", "1700-02-29", "2026-00-10"}},
		{"time", []string{"03:04:05.678901", "00:00", "23:59:59"}, []string{"03:04:05.6789012", "25:00:00", "03:04:05Z"}},
		{"time(3)", []string{"03:04:05.678"}, []string{"03:04:05.6789"}},
		{"uuid", []string{"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, []string{"6ba7b810", "", "6ba7b810-9dad-11d1-80b4-00c04fd430cx", "6ba7b8109dad11d180b400c04fd430c8"}},
		{"mood", []string{"happy"}, []string{"Happy", "c"}},
		{"varchar(3)", []string{"abc", "a", "\u65e5\u672c\u8a9e", ""}, []string{"abcd", "a   ", "\x00"}},
		{"char(3)", []string{"abc"}, []string{"abcd"}},
		{"citext", []string{"Any", " \u00c9 "}, []string{"\x00"}},
		{"even", []string{"2", "-400"}, []string{"3", "99999999999"}},
		{"numeric(4,2)", []string{"12.34", "-0.5", "1e+1", "0", "99.99"}, []string{"123.4", "1.234", "100", "1e-3"}},
		{"numeric(2,-3)", []string{"1000", "99000", "0"}, []string{"1500", "100000", "1"}},
		{"numeric", []string{"1e+131071", "1e-16383", "123456789012345678901234567890.123", "-0.0001"}, []string{"1e+131072", "1e-16384", "1e+99999999", "1e-99999999"}},
		{"numeric(38,0)", nil, nil},
		{"smallint", []string{"32767", "-32768"}, []string{"32768", "-32769"}},
		{"real", []string{"0.5", "16777216"}, []string{"0.1", "16777217", "1e+300"}},
		{"json", []string{`{"b":1,"a":2,"a":"\u0000"}`, "1e200000"}, []string{`{`}},
		{"bytea", []string{`\x41`, "plain", "\x00\u00e9"}, nil},
		{"text", []string{`{"a": 1}`, "x"}, []string{"\x00"}},
		{"inet", nil, []string{"10.0.0.1"}},
		{"bigint[]", nil, []string{"[1,2]", "{1,2}"}},
		{"interval", nil, []string{"1 day"}},
	} {
		t.Run(c.typ, func(t *testing.T) {
			if strings.Contains(c.typ, "-") && h.text(t, "SHOW server_version_num") < "150000" {
				t.Skip("such types came with PostgreSQL 15")
			}
			h.exec(t, "DROP TABLE IF EXISTS orders, orders_dead_letters, _kinetl_watermarks")
			h.exec(t, "CREATE TABLE orders (id bigint, theirs "+c.typ+")")
			d, schema := h.worker(t, nil)
			if !schema[1].Cap {
				t.Fatalf("column %+v is no cap", schema[1])
			}
			cell := func(v string) any {
				switch schema[1].Class {
				case kinetl.Int64:
					n, _ := strconv.Atoi(v)
					return n
				case kinetl.Double:
					f, _ := strconv.ParseFloat(v, 64)
					return f
				}
				return v
			}
			rows := [][]any{{0, nil}}
			for _, v := range c.good {
				rows = append(rows, []any{len(rows), cell(v)})
			}
			for _, v := range c.bad {
				r := wantRefused(t, d, textPart(kinetl.Oldest, at(99), schema, append(rows, []any{99, cell(v)})...), len(rows)+1)
				if schema[1].Native != "" && r.Rows[0].Column == "" && !strings.Contains(v, "\x00") && c.typ != "mood" && c.typ != "even" && c.typ != "json" {
					t.Errorf("%q was refused without its column: %+v", v, r.Rows[0])
				}
			}
			commitAll(t, d, textPart(kinetl.Oldest, at(99), schema, rows...))
			for i, v := range c.good {
				// What the server makes of the text itself, given that it reads UTC.
				cast := fmt.Sprintf("%s::%s", literal(v), c.typ)
				if c.typ == "bytea" {
					cast = fmt.Sprintf("convert_to(%s, 'UTF8')", literal(v))
					if strings.Contains(v, "\x00") {
						cast = `'\x00c3a9'::bytea`
					}
				}
				if got := h.text(t, fmt.Sprintf("SELECT (theirs::text = (%s)::text)::text || ' ' || theirs::text FROM orders WHERE id = %d", cast, i+1)); !strings.HasPrefix(got, "true") {
					t.Errorf("%s: stored %s", v, got)
				}
			}
		})
	}
}

// R28: a generated column takes no value; rows that leave it out are stored.
func TestGeneratedColumn(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, `CREATE TABLE orders (a text, g text GENERATED ALWAYS AS (upper(a)) STORED)`)
	d, schema := h.worker(t, kinetl.Schema{{Name: "g", Class: kinetl.String}})
	wantRefused(t, d, textPart(kinetl.Oldest, at(2), schema, []any{"x", nil}, []any{"x", "X"}), 2)
	commitAll(t, d, textPart(kinetl.Oldest, at(2), schema, []any{"x", nil}))
	if got := h.read(t, "orders", schema).Rows; len(got) != 1 || got[0].Cells["g"] != "X" {
		t.Fatalf("rows %v", got)
	}
}
