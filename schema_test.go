package kinetl_test

import (
	"testing"

	"github.com/kinetl/kinetl"
	"pgregory.net/rapid"
)

var allClasses = []kinetl.Class{kinetl.Unset, kinetl.Empty, kinetl.Bool, kinetl.Int53, kinetl.Int64, kinetl.Decimal, kinetl.Double, kinetl.Number, kinetl.String, kinetl.JSON, kinetl.Timestamp, kinetl.Metadata, kinetl.Text}

// T5, R28: a column's class can't depend on the order of its values.
func TestJoinIsASemilattice(t *testing.T) {
	for _, a := range allClasses {
		if a.Join(a) != a {
			t.Errorf("%s joined with itself is %s", a, a.Join(a))
		}
		for _, b := range allClasses {
			if a.Join(b) != b.Join(a) {
				t.Errorf("%s and %s: %s one way, %s the other", a, b, a.Join(b), b.Join(a))
			}
			for _, c := range allClasses {
				if x, y := a.Join(b).Join(c), a.Join(b.Join(c)); x != y {
					t.Errorf("%s, %s, %s: %s or %s", a, b, c, x, y)
				}
			}
		}
	}
}

// R28: int53 < int64 < decimal; int53 < double; other mixes of numbers are exact
// text; other mixes of kinds are JSON.
func TestJoinsOfNumbers(t *testing.T) {
	for _, c := range []struct{ a, b, want kinetl.Class }{
		{kinetl.Int53, kinetl.Int64, kinetl.Int64},
		{kinetl.Int64, kinetl.Decimal, kinetl.Decimal},
		{kinetl.Int53, kinetl.Double, kinetl.Double},
		{kinetl.Int64, kinetl.Double, kinetl.Number},
		{kinetl.Decimal, kinetl.Double, kinetl.Number},
		{kinetl.Number, kinetl.Int53, kinetl.Number},
		{kinetl.Bool, kinetl.Int53, kinetl.JSON},
		{kinetl.String, kinetl.Number, kinetl.JSON},
		{kinetl.Empty, kinetl.Int53, kinetl.Int53},
		{kinetl.Empty, kinetl.JSON, kinetl.JSON},
	} {
		if got := c.a.Join(c.b); got != c.want {
			t.Errorf("%s and %s: %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

// R29: refuse lets numbers widen and nothing else; a cap lets nothing.
func TestWiden(t *testing.T) {
	for _, c := range []struct {
		column  kinetl.Column
		value   kinetl.Class
		changes kinetl.TypeChanges
		want    kinetl.Class
		ok      bool
	}{
		{kinetl.Column{Class: kinetl.Int53}, kinetl.Double, kinetl.Refuse, kinetl.Double, true},
		{kinetl.Column{Class: kinetl.Int64}, kinetl.Double, kinetl.Refuse, kinetl.Number, true},
		{kinetl.Column{Class: kinetl.Empty}, kinetl.String, kinetl.Refuse, kinetl.String, true},
		{kinetl.Column{Class: kinetl.JSON}, kinetl.String, kinetl.Refuse, kinetl.JSON, true},
		{kinetl.Column{Class: kinetl.Int53}, kinetl.String, kinetl.Refuse, kinetl.JSON, false},
		{kinetl.Column{Class: kinetl.Int53}, kinetl.String, kinetl.Allow, kinetl.JSON, true},
		{kinetl.Column{Class: kinetl.Int53, Cap: true}, kinetl.Double, kinetl.Allow, kinetl.Int53, false},
		{kinetl.Column{Class: kinetl.Double, Cap: true}, kinetl.Int53, kinetl.Refuse, kinetl.Double, true},
		{kinetl.Column{Class: kinetl.Text, Cap: true}, kinetl.JSON, kinetl.Refuse, kinetl.Text, true},
		{kinetl.Column{Class: kinetl.Timestamp}, kinetl.String, kinetl.Allow, kinetl.Text, false},
	} {
		got, ok := c.column.Widen(c.value, c.changes)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%+v takes %s: %s %t, want %s %t", c.column, c.value, got, ok, c.want, c.ok)
		}
	}
}

func TestClassNamesParse(t *testing.T) {
	for _, c := range allClasses[1:] {
		if got, ok := kinetl.ParseClass(c.String()); !ok || got != c {
			t.Errorf("%s parses as %s, %t", c, got, ok)
		}
	}
	for _, name := range []string{"unset", "", "INT53"} {
		if _, ok := kinetl.ParseClass(name); ok {
			t.Errorf("%q is no class of a column", name)
		}
	}
}

// R12: names match exactly when they are equal but for the case of ASCII letters.
func TestFold(t *testing.T) {
	for name, want := range map[string]string{"": "", "abc": "abc", "aBC_9": "abc_9", "\u00c4A": "\u00c4a", "K\u212a": "k\u212a"} {
		if got := kinetl.Fold(name); got != want {
			t.Errorf("%q folds to %q, want %q", name, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		if folded := kinetl.Fold(name); kinetl.Fold(folded) != folded || len(folded) != len(name) {
			t.Fatalf("%q folds to %q, and that to %q", name, folded, kinetl.Fold(folded))
		}
	})
}

func TestSchemaJoinKeepsOrderAndCaps(t *testing.T) {
	have := kinetl.Schema{{Name: "A", Class: kinetl.Int53}, {Name: "b", Class: kinetl.Int53, Cap: true, Native: "INTEGER"}, {Name: "c", Class: kinetl.Bool}}
	want := kinetl.Schema{{Name: "new", Class: kinetl.String}, {Name: "a", Class: kinetl.Double}, {Name: "B", Class: kinetl.Double}, {Name: "c", Class: kinetl.String}}
	got := have.Join(want, kinetl.Refuse)
	expect := kinetl.Schema{{Name: "A", Class: kinetl.Double}, have[1], have[2], want[0]}
	if d := expect.Differs(got); d != "" || len(got) != len(expect) {
		t.Errorf("joined to %+v: %s", got, d)
	}
	if have[0].Class != kinetl.Int53 {
		t.Error("the joined schema was changed")
	}
}
