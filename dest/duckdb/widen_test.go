package duckdb

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kinetl/kinetl"
)

// R12: a column of a table over the limit is not rewritten: it is capped, and Why says
// what a person may do. Changes that rewrite nothing are made. The statements in Why
// do to the stored values what kinetl would have done, and so does lifting the limit.
func TestARewriteOfALargeTable(t *testing.T) {
	from, to, values, want := widenings()
	for _, way := range []string{"by hand", "lifted"} {
		t.Run(way, func(t *testing.T) {
			h := newHarness(t, "Orders")
			h.worker(t, from)
			w := open(t, Options{Path: h.path, Namespace: h.namespace, Application: "app"})
			if _, err := w.Commit(t.Context(), "orders", []kinetl.Part{textPart(kinetl.Oldest, at(1), from, values)}); err != nil {
				t.Fatal(err)
			}
			h.exec(t, "CHECKPOINT")

			small := open(t, Options{Path: h.path, Namespace: h.namespace, Application: "app", RewriteLimit: 1})
			withNew := append(append(kinetl.Schema{}, to...), kinetl.Column{Name: "new", Class: kinetl.String})
			got, err := small.Prepare(t.Context(), "orders", withNew, kinetl.Allow)
			if err != nil {
				t.Fatal(err)
			}
			if got.Index("new") < 0 {
				t.Error("the new column was not added")
			}
			rewritten := 0
			for i, c := range to {
				have := got[got.Index(c.Name)]
				if free := typeOf(c.Class) == typeOf(from[i].Class) && from[i].Class != kinetl.String; free {
					if have.Cap || have.Class != c.Class {
						t.Errorf("%s: %+v, want it widened: nothing is rewritten", c.Name, have)
					}
					continue
				}
				rewritten++
				if !have.Cap || have.Class != from[i].Class || !strings.Contains(have.Why, "--rewrite") || strings.Contains(have.Why, "\n") {
					t.Errorf("%s: %+v, want a cap", c.Name, have)
				}
				_, script, _ := strings.Cut(have.Why, "execute ")
				if way == "by hand" {
					h.exec(t, script)
				}
			}
			if rewritten < 10 {
				t.Errorf("only %d columns would be rewritten: this proves little", rewritten)
			}
			if way == "lifted" {
				small = open(t, Options{Path: h.path, Namespace: h.namespace, Application: "app", RewriteLimit: math.MaxInt64})
			}
			got, err = small.Prepare(t.Context(), "orders", to, kinetl.Allow)
			if err != nil {
				t.Fatal(err)
			}
			if diff := to.Differs(got); diff != "" {
				t.Error(diff)
			}
			for i, c := range to {
				var value any
				if err := h.look.db.QueryRow(fmt.Sprintf("SELECT CAST(%s AS VARCHAR) FROM %s", quote(c.Name), h.look.table("orders"))).Scan(&value); err != nil {
					t.Fatal(err)
				}
				if got[got.Index(c.Name)].Cap || fmt.Sprint(value) != want[i] {
					t.Errorf("%s holds %v, want %s", c.Name, value, want[i])
				}
			}
		})
	}
}

// The size of a table is that of its own blocks, whatever else is in the file and
// whatever its name.
func TestTableSize(t *testing.T) {
	h := newHarness(t, "main")
	d := open(t, Options{Path: h.path, RewriteLimit: 1 << 20})
	const rows = `SELECT hash(i) AS a, hash(i + 1) AS b FROM range(500000) r(i)` // 8 MB, incompressible
	for _, name := range []string{"large", "it's . large"} {
		h.exec(t, fmt.Sprintf("CREATE TABLE %s AS %s", d.table(name), rows))
	}
	h.exec(t, "CREATE TABLE texts AS SELECT repeat(chr((65 + i % 7)::INTEGER), 5000) || hash(i) AS s FROM range(1000) r(i)")
	h.exec(t, `CREATE TABLE "sm all" AS SELECT 1 AS a`)
	h.exec(t, `CREATE TABLE "sm""all" AS SELECT 1 AS a`)
	h.exec(t, "CHECKPOINT")
	for name, c := range map[string]struct{ least, most int64 }{
		"large": {7 << 20, 12 << 20}, "LARGE": {7 << 20, 12 << 20}, "it's . large": {7 << 20, 12 << 20},
		"texts": {4 << 20, 8 << 20}, "sm all": {0, 1 << 20},
		`sm"all`: {16 << 20, 40 << 20}, // the whole file: its name can't be asked for
	} {
		err := d.transact(t.Context(), func(tx *tx) error {
			size, err := tx.size(t.Context(), name, refusals{size: new(int64)})
			if err == nil && (size < c.least || size > c.most) {
				t.Errorf("%s has %s, want %s to %s", name, inWords(size), inWords(c.least), inWords(c.most))
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// R28: a column that an index holds as it is says so.
func TestWhyAColumnIsNotAltered(t *testing.T) {
	h := newHarness(t, "main")
	d, _ := h.worker(t, kinetl.Schema{{Name: "n", Class: kinetl.Int53}})
	h.exec(t, "CREATE INDEX pin ON orders (n)")
	got, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "n", Class: kinetl.Double}}, kinetl.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	if c := got[0]; !c.Cap || c.Class != kinetl.Int53 || !strings.Contains(c.Why, "index") || strings.Contains(c.Why, "\n") {
		t.Errorf("%+v", c)
	}
}
