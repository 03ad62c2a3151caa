package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/postgres/postgrestest"

	"github.com/jackc/pgx/v5"
)

// Plain names are in PostgreSQL's own case, so that they are found without quotes;
// others keep their spelling.
func TestNamesInTheCatalogue(t *testing.T) {
	h := newHarness(t, "public")
	long := strings.Repeat("Long \u00e9", 20)
	d, schema := h.worker(t, kinetl.Schema{{Name: "UserID"}, {Name: "UserID", Class: kinetl.Int53}, {Name: "User Name", Class: kinetl.String}, {Name: "Stra\u00dfe", Class: kinetl.String},
		{Name: "ctid", Class: kinetl.String}, {Name: long + "a", Class: kinetl.String}, {Name: long + "b", Class: kinetl.String}, {Name: "order", Class: kinetl.Bool}})
	commitAll(t, d, textPart(kinetl.Oldest, at(1), schema, []any{1, "n", "s", "c", "a", "b", true}))
	if got := h.text(t, `SELECT UserID || "User Name" || STRA`+"\u00df"+`E || "order" FROM ORDERS`); got != "1nstrue" {
		t.Errorf("read %s", got)
	}
	names := h.catalogueNames(t, "orders")
	seen := map[string]bool{}
	for _, key := range []string{"ctid", long + "a", long + "b"} {
		name := names[kinetl.Fold(key)]
		if name == "" || len(name) > maxName || seen[name] || !strings.HasPrefix(name, key[:4]) {
			t.Errorf("%q is in column %q", key, name)
		}
		seen[name] = true
	}
	// Another spelling of a cut name is the same column.
	got, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: strings.ToUpper(long[:5]) + long[5:] + "A", Class: kinetl.String}}, kinetl.Refuse)
	if err != nil || len(got) != len(schema) {
		t.Errorf("%d columns (%v), want %d", len(got), err, len(schema))
	}
	// So is a table's, and its watermarks and dead letters are apart from its neighbour's.
	for _, table := range []string{long + "a", long + "b", long + "a"} {
		if _, err := d.Prepare(t.Context(), table, schema[:1], kinetl.Refuse); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.text(t, "SELECT count(*)::text FROM pg_tables WHERE tablename LIKE 'Long%' AND length(tablename::bytea) <= 63"); n != "4" {
		t.Errorf("%s tables, want two with their dead letters", n)
	}
}

// A key that is spelled like a name that kinetl made up gets another one.
func TestANameThatIsTaken(t *testing.T) {
	h := newHarness(t, "public")
	made := columnName("xmin", map[string]bool{})
	d, schema := h.worker(t, kinetl.Schema{{Name: made, Class: kinetl.Int53}, {Name: "xmin", Class: kinetl.Int53}})
	commitAll(t, d, textPart(kinetl.Oldest, at(1), schema, []any{1, 2}))
	h.worker(t, kinetl.Schema{{Name: "XMIN", Class: kinetl.Int53}})
	rows := h.read(t, "orders", schema).Rows
	if len(schema) != 2 || rows[0].Cells[made] != "1" || rows[0].Cells["xmin"] != "2" {
		t.Errorf("%v holds %v", schema, rows)
	}
}

// A column of somebody else's with a spelling that quotes keep is found and filled.
func TestSomebodysSpelling(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, `CREATE TABLE orders ("UserID" bigint)`)
	d, schema := h.worker(t, kinetl.Schema{{Name: "userid", Class: kinetl.Int53}})
	commitAll(t, d, textPart(kinetl.Oldest, at(1), schema, []any{7}))
	if got := h.text(t, `SELECT "UserID"::text FROM orders`); got != "7" || len(schema) != 1 {
		t.Errorf("read %s from %v", got, schema)
	}
}

// FuzzNames: names fit, are UTF-8, are the same for spellings that are one name, and
// different for others.
func FuzzNames(f *testing.F) {
	f.Add("orders", "ORDERS")
	f.Add(strings.Repeat("x", 200)+"y", strings.Repeat("x", 200)+"z")
	f.Add(strings.Repeat("\u65e5", 40), strings.Repeat("\u65e5", 41))
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return
		}
		for name, n := range map[string]string{"table": tableName(a), "dead letters": deadLetters(a), "column": columnName(a, map[string]bool{}), "marker": marker(a)} {
			if len(n) > maxName || !utf8.ValidString(n) {
				t.Errorf("%s of %q: %q", name, a, n)
			}
		}
		if isPlain(a) && len(a) <= maxName && tableName(a) != kinetl.Fold(a) {
			t.Errorf("%q is %q", a, tableName(a))
		}
		if kinetl.Fold(a) != kinetl.Fold(b) && (tableName(a) == tableName(b) || deadLetters(a) == deadLetters(b)) && len(a) > maxName-20 && len(b) > maxName-20 {
			t.Errorf("%q and %q are both %q", a, b, tableName(a))
		}
	})
}

// FuzzQuote: the quoting of names and texts holds for any text: the server gives the
// same back.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"a", `"`, `""`, "a.b", "'; DROP TABLE x; --", "\u00e9", "\\", "\n", "SELECT", `\'`, `it's \ "x"`} {
		f.Add(s)
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, postgrestest.Start(f))
	if err != nil {
		f.Fatal(err)
	}
	defer conn.Close(ctx)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return
		}
		name := fit(text+"x", maxName)
		for _, conforming := range []string{"on", "off"} {
			rows, err := conn.Query(ctx, fmt.Sprintf("SELECT %s AS %s WHERE set_config('standard_conforming_strings', '%s', false) <> ''", literal(text), quote(name), conforming), pgx.QueryExecModeExec)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			var got string
			column := string(rows.FieldDescriptions()[0].Name)
			if _, err := pgx.ForEachRow(rows, []any{&got}, func() error { return nil }); err != nil || got != text || column != name {
				t.Fatalf("%q came back as %q in column %q (%v)", text, got, column, err)
			}
		}
	})
}
