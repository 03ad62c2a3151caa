package postgres

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/kinetl/kinetl"
)

// awkwardDoubles are those about which two ways of printing tend to differ.
func awkwardDoubles() []float64 {
	out := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64,
		0.1, 1.0 / 3, 1e23, 8.41e21, 9.5367431640625e-07, 5e-324, 1.5e300, 2.2250738585072014e-308, 1e-5, 1e-4, 0.00012, 123456789012345.6, 1e15 + 0.3}
	for e := -324; e <= 308; e++ {
		var f float64
		fmt.Sscanf(fmt.Sprintf("1e%d", e), "%g", &f)
		out = append(out, f, 3*f, math.Nextafter(f, 0), math.Nextafter(f, math.MaxFloat64))
	}
	for e := -1074; e <= 1023; e++ {
		f := math.Ldexp(1, e)
		out = append(out, f, math.Nextafter(f, 0), math.Nextafter(f, math.MaxFloat64), 5*f)
	}
	// The halves between neighbours above 2^53 that have few digits.
	for digits := int64(1); digits < 1000; digits++ {
		for e := 14; e < 30; e++ {
			var f float64
			fmt.Sscanf(fmt.Sprintf("%de%d", digits, e), "%g", &f)
			out = append(out, f)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		out = append(out, math.Float64frombits(random.Uint64()), math.Ldexp(random.Float64(), 50+random.IntN(60)))
	}
	for i := range out {
		if i%3 == 0 {
			out[i] = -out[i]
		}
	}
	return out
}

// R28: what becomes of a stored double in a column of text is the text that the decoder
// would have given it.
func TestDoubleText(t *testing.T) {
	h := newHarness(t, "public")
	h.makeDoubleText(t)
	doubles := awkwardDoubles()
	n, differs := 0, 0
	rows, err := h.raw.Query(t.Context(), `SELECT v, _kinetl_double_text(v), v::text FROM unnest($1::float8[]) WITH ORDINALITY AS u(v, n) ORDER BY n`, doubles)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var v float64
		var text, cast string
		if err := rows.Scan(&v, &text, &cast); err != nil {
			t.Fatal(err)
		}
		if want := kinetl.FormatDouble(doubles[n]); text != want {
			t.Errorf("%x is %s, want %s", math.Float64bits(v), text, want)
		}
		if text != cast && math.Abs(v) >= 1e16 {
			differs++
		}
	}
	if rows.Err() != nil || n != len(doubles) {
		t.Fatalf("%d of %d doubles: %v", n, len(doubles), rows.Err())
	}
	if differs < 10 {
		t.Errorf("the cast would have done for all but %d: this proves little", differs)
	}
}

// makeDoubleText has Prepare make the function, in the only way that it does.
func (h *harness) makeDoubleText(t *testing.T) {
	t.Helper()
	d := h.open(t, Options{})
	defer d.Close()
	for _, class := range []kinetl.Class{kinetl.Double, kinetl.Number} {
		if _, err := d.Prepare(context.Background(), "doubles", kinetl.Schema{{Name: "v", Class: class}}, kinetl.Refuse); err != nil {
			t.Fatal(err)
		}
	}
}

// stored is a value of each class, and the text that it has in wider columns.
var stored = []struct {
	class  kinetl.Class
	value  any
	number string // in a column of numbers as text; empty: does not go there
	json   string
}{
	{kinetl.Empty, "{}", "", "{}"},
	{kinetl.Bool, true, "", "true"},
	{kinetl.Int53, 7, "7", "7"},
	{kinetl.Int64, 9007199254740993, "9007199254740993", "9007199254740993"},
	{kinetl.Decimal, decimal128.FromI64(12), "12", "12"},
	{kinetl.Double, 1e23, "1e+23", "100000000000000000000000"},
	{kinetl.Number, "0.1000000000000000000001", "", "0.1000000000000000000001"},
	{kinetl.String, `say "hi"`, "", `"say \"hi\""`},
}

// widenings is every step up from one class to another that a column can take, as
// one column each.
func widenings() (from, to kinetl.Schema, values []any, want []string) {
	for _, s := range stored {
		for wide := kinetl.Bool; wide <= kinetl.JSON; wide++ {
			if s.class == wide || s.class.Join(wide) != wide {
				continue
			}
			name := fmt.Sprintf("%s_%s", s.class, wide)
			from = append(from, kinetl.Column{Name: name, Class: s.class})
			to = append(to, kinetl.Column{Name: name, Class: wide})
			values = append(values, s.value)
			switch {
			case wide == kinetl.JSON:
				want = append(want, s.json)
			case s.class == kinetl.Empty:
				want = append(want, "<nil>")
			default:
				want = append(want, s.number)
			}
		}
	}
	return from, to, values, want
}

// R12: a column of a table over the limit is not rewritten: it is capped, and Why says
// what a person may do. Changes that rewrite nothing are made. The statements in Why
// do to the stored values what kinetl would have done, and so does lifting the limit.
func TestARewriteOfALargeTable(t *testing.T) {
	from, to, values, want := widenings()
	for _, way := range []string{"by hand", "lifted"} {
		t.Run(way, func(t *testing.T) {
			h := newHarness(t, "Orders")
			d, _ := h.worker(t, from)
			if _, err := d.Commit(t.Context(), "orders", []kinetl.Part{textPart(kinetl.Oldest, at(1), from, values)}); err != nil {
				t.Fatal(err)
			}
			small := h.open(t, Options{Application: "app", RewriteLimit: 1})
			defer small.Close()
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
				if free := typeOf(c.Class) == typeOf(from[i].Class); free {
					if have.Cap || have.Class != c.Class {
						t.Errorf("%s: %+v, want it widened: nothing is rewritten", c.Name, have)
					}
					continue
				}
				rewritten++
				if !have.Cap || have.Class != from[i].Class || !strings.Contains(have.Why, "--rewrite") || strings.Contains(have.Why, "\n") {
					t.Errorf("%s: %+v, want a cap", c.Name, have)
				}
				if _, script, _ := strings.Cut(have.Why, "execute "); way == "by hand" {
					h.exec(t, script)
				}
			}
			if rewritten < 10 {
				t.Errorf("only %d columns would be rewritten: this proves little", rewritten)
			}
			if way == "lifted" {
				small = h.open(t, Options{Application: "app", RewriteLimit: math.MaxInt64})
				defer small.Close()
			}
			got, err = small.Prepare(t.Context(), "orders", to, kinetl.Allow)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range to {
				have := got[got.Index(c.Name)]
				if have.Cap || have.Class != c.Class {
					t.Errorf("%s is %+v, want %s", c.Name, have, c.Class)
				}
				if text := h.text(t, fmt.Sprintf("SELECT coalesce(%s::text, '<nil>') FROM %s", quote(c.Name), h.table("orders"))); text != want[i] {
					t.Errorf("%s: %s, want %s", c.Name, text, want[i])
				}
			}
		})
	}
}

// R12: a value that its column's next type can't hold keeps the column as it is, and
// says so; the others are widened all the same.
func TestAValueThatTheWiderTypeRefuses(t *testing.T) {
	h := newHarness(t, "public")
	before := kinetl.Schema{{Name: "huge", Class: kinetl.Number}, {Name: "n", Class: kinetl.Int53}, {Name: "m", Class: kinetl.Int53}}
	d, _ := h.worker(t, before)
	if _, err := d.Commit(t.Context(), "orders", []kinetl.Part{textPart(kinetl.Oldest, at(1), before, []any{"1e+200000", 1, 2})}); err != nil {
		t.Fatal(err)
	}
	got, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "huge", Class: kinetl.JSON}, {Name: "n", Class: kinetl.JSON}, {Name: "m", Class: kinetl.Double}}, kinetl.Allow)
	if err != nil {
		t.Fatal(err)
	}
	if c := got[0]; !c.Cap || c.Class != kinetl.Number || !strings.Contains(c.Why, "overflows") || strings.Contains(c.Why, "\n") {
		t.Errorf("huge is %+v, want a cap that says why", c)
	}
	if got[1].Class != kinetl.JSON || got[1].Cap || got[2].Class != kinetl.Double || got[2].Cap {
		t.Errorf("the others are %+v and %+v", got[1], got[2])
	}
}

// R28: a column that a view holds as it is says so.
func TestWhyAColumnIsNotAltered(t *testing.T) {
	h := newHarness(t, "public")
	d, _ := h.worker(t, kinetl.Schema{{Name: "n", Class: kinetl.Int53}})
	h.exec(t, "CREATE VIEW pin AS SELECT n FROM orders")
	got, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "n", Class: kinetl.Double}}, kinetl.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	if c := got[0]; !c.Cap || c.Class != kinetl.Int53 || !strings.Contains(c.Why, "view") || strings.Contains(c.Why, "\n") {
		t.Errorf("%+v", c)
	}
}
