package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
)

func manyColumns(from, to int, class kinetl.Class) (out kinetl.Schema) {
	for i := from; i < to; i++ {
		out = append(out, kinetl.Column{Name: fmt.Sprintf("c%d", i), Class: class})
	}
	return out
}

// A table takes 1600 columns and no more, dropped ones included. What is beyond comes
// back as a column that nothing fits: its records become dead letters, the others rows.
func TestMoreColumnsThanATableTakes(t *testing.T) {
	h := newHarness(t, "public")
	d, first := h.worker(t, manyColumns(0, 1590, kinetl.String))
	if len(first) != 1590 {
		t.Fatalf("%d columns", len(first))
	}
	h.exec(t, "ALTER TABLE orders DROP COLUMN c7")
	schema, err := d.Prepare(t.Context(), "orders", manyColumns(1590, 1605, kinetl.String), kinetl.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		c := schema[schema.Index(fmt.Sprintf("c%d", 1590+i))]
		if out := i >= 10; out != c.Cap || out != (c.Class == kinetl.Unset) || out != strings.Contains(c.Why, "1600") {
			t.Errorf("%+v", c)
		}
	}
	// As the engine goes on with it.
	b := kinetl.NewBuilder(schema, kinetl.Refuse, kinetl.MetadataNone)
	var capped *kinetl.CappedError
	if err := b.Set([]byte("c1604"), kinetl.String, []byte("x")); !errors.As(err, &capped) || capped.Column.Name != "c1604" {
		t.Fatalf("a value for a column that could not be added: %v", err)
	}
	b.AbortRow()
	err = errors.Join(b.Set([]byte("c1"), kinetl.String, []byte("x")), b.Set([]byte("c1603"), kinetl.Unset, nil), b.EndRow(&kinetl.Record{Sequence: "1"}, shard))
	if err != nil {
		t.Fatal(err)
	}
	rows, of, ids := b.Seal()
	conformed, of, err := kinetl.Conform(rows, of, schema)
	if err != nil {
		t.Fatal(err)
	}
	commitAll(t, d, kinetl.Part{Shard: shard, After: kinetl.Oldest, Through: at(1), Rows: conformed, Schema: of, RowIDs: ids})
	// A table that is made anew is no other.
	if schema, err = d.Prepare(t.Context(), "wide", manyColumns(0, 1700, kinetl.Bool), kinetl.Refuse); err != nil {
		t.Fatal(err)
	}
	if len(schema) != 1700 || schema[1599].Cap || !schema[1600].Cap || schema[1600].Class != kinetl.Unset {
		t.Errorf("%d columns, %+v, %+v", len(schema), schema[1599], schema[1600])
	}
}

// A view is refused before anything is read for it.
func TestAView(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, "CREATE VIEW orders AS SELECT 1 AS n")
	d := h.open(t, Options{})
	defer d.Close()
	if _, err := d.Prepare(t.Context(), "orders", nil, kinetl.Refuse); err == nil || !strings.Contains(err.Error(), "view") {
		t.Fatalf("prepare: %v", err)
	}
}

// as is the database's URL for another role, whose password is secret.
func (h *harness) as(t *testing.T, role string) string {
	t.Helper()
	u, err := url.Parse(h.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, secret)
	return u.String()
}

// documented is the statements of docs/postgres.md that set a role up.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statements, _ := strings.Cut(string(text), "```sql\n")
	statements, _, found := strings.Cut(statements, "```")
	if !found {
		t.Fatal("docs/postgres.md has no statements")
	}
	return statements
}

// The statements of docs/postgres.md are all that a role needs: it makes and widens
// tables, loads them, and ends sessions of its own that hang.
func TestDocumentedRights(t *testing.T) {
	h := newHarness(t, "kinesis")
	h.exec(t, "DROP ROLE IF EXISTS kinetl")
	database := h.text(t, "SELECT current_database()")
	h.exec(t, strings.NewReplacer("'...'", "'"+secret+"'", "DATABASE shop", "DATABASE "+database).Replace(documented(t)))
	defer h.exec(t, "DROP OWNED BY kinetl CASCADE; DROP ROLE kinetl")
	ctx := context.Background()
	d, err := New(ctx, Options{URL: h.as(t, "kinetl"), Schema: "kinesis", Application: "app"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	schema := kinetl.Schema{{Name: "n", Class: kinetl.Double}}
	if _, err := d.Prepare(ctx, "orders", schema, kinetl.Refuse); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err != nil {
		t.Fatal(err)
	}
	p := textPart(kinetl.Oldest, at(1), schema, []any{1.5})
	p.DeadLetters = []kinetl.DeadLetter{{Sequence: "1", Reason: "x"}}
	commitAll(t, d, p)
	got, err := d.Prepare(ctx, "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}, {Name: "m", Class: kinetl.Bool}}, kinetl.Refuse)
	if err != nil || len(got) != 2 || got[0].Cap || got[0].Class != kinetl.Number {
		t.Fatalf("%v (%v)", got, err)
	}
	// It may also see who is in the way.
	h.exec(t, "BEGIN")
	h.exec(t, "SELECT FROM kinesis.orders")
	impatient, err := New(ctx, Options{URL: h.as(t, "kinetl"), Schema: "kinesis", Application: "app", LeaseTime: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer impatient.Close()
	_, err = impatient.Prepare(ctx, "orders", kinetl.Schema{{Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d (user postgres", h.raw.PgConn().PID())) {
		t.Errorf("prepare: %v, want the session named", err)
	}
	h.exec(t, "ROLLBACK")
}

// Of two columns that only quotes tell apart the first is meant, throughout.
func TestTwoSpellings(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, `CREATE TABLE orders ("N" bigint, n bigint, id bigint); COMMENT ON COLUMN orders."N" IS 'kinetl: int53'; COMMENT ON COLUMN orders.n IS 'kinetl: int53'`)
	d, _ := h.worker(t, nil)
	got, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}}, kinetl.Refuse)
	if err != nil || got[0].Class != kinetl.Number || got[1].Class != kinetl.Int53 {
		t.Fatalf("%v (%v)", got, err)
	}
	commitAll(t, d, textPart(kinetl.Oldest, at(1), got[:1], []any{"0.1"}))
	if text := h.text(t, `SELECT "N" || coalesce(n::text, '-') FROM orders`); text != "0.1-" {
		t.Errorf("stored %s", text)
	}
}

// A table that belongs to somebody else is loaded as it is: what its columns do not
// take is said, and not for ever tried.
func TestATableOfSomebodyElse(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD '"+secret+"'; GRANT CREATE ON SCHEMA public TO guest")
	defer h.exec(t, "DROP OWNED BY guest CASCADE; DROP ROLE guest")
	h.exec(t, "CREATE TABLE orders (n bigint, must text NOT NULL); COMMENT ON COLUMN orders.n IS 'kinetl: int53'; GRANT SELECT, INSERT ON orders TO guest")
	ctx := context.Background()
	d, err := New(ctx, Options{URL: h.as(t, "guest"), Application: "app"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, class := range []kinetl.Class{kinetl.Double, kinetl.Int64} {
		schema, err := d.Prepare(ctx, "orders", kinetl.Schema{{Name: "n", Class: class}, {Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"n", "new"} {
			c := schema[schema.Index(name)]
			if want := map[string]kinetl.Class{"n": kinetl.Int53, "new": kinetl.Unset}[name]; !c.Cap || c.Class != want || !strings.Contains(c.Why, "must be owner") {
				t.Errorf("%+v", c)
			}
		}
	}
	if _, err := d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err != nil {
		t.Fatal(err)
	}
	schema := kinetl.Schema{{Name: "n", Class: kinetl.Int53}, {Name: "must", Class: kinetl.Text}}
	wantRefused(t, d, textPart(kinetl.Oldest, at(2), schema, []any{1, "x"}, []any{2, nil}), 2)
	commitAll(t, d, textPart(kinetl.Oldest, at(1), schema, []any{1, "x"}))
}

// Two applications may load two tables of one schema, and a table of partitions is a
// table.
func TestPartitions(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, `CREATE TABLE orders (day date, n bigint) PARTITION BY RANGE (day);
		CREATE TABLE orders_2026 PARTITION OF orders FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
		COMMENT ON COLUMN orders.n IS 'kinetl: int64'`)
	d, schema := h.worker(t, kinetl.Schema{{Name: "s", Class: kinetl.String}})
	commitAll(t, d, textPart(kinetl.Oldest, at(1), schema, []any{"2026-05-06", 1, "x"}))
	schema, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}}, kinetl.Refuse)
	if err != nil || schema[1].Class != kinetl.Number {
		t.Fatalf("%v (%v)", schema, err)
	}
	small := h.open(t, Options{Application: "app", RewriteLimit: 1})
	defer small.Close()
	schema, err = small.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "s", Class: kinetl.JSON}}, kinetl.Allow)
	if err != nil || !schema[2].Cap || !strings.Contains(schema[2].Why, "--rewrite") {
		t.Fatalf("%v (%v), want the size of the partitions to count", schema, err)
	}
}
