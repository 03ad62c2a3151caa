package kinetl_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/kinetl/kinetl"
	"pgregory.net/rapid"
)

// stored is a table in memory: batches that are converted whenever a column widens,
// as an engine converts what it has stored.
type stored struct {
	schema  kinetl.Schema
	batches []arrow.RecordBatch
	forms   []kinetl.Schema
	refused int
}

func (s *stored) commit(t *rapid.T, payloads []string, known kinetl.Schema, changes kinetl.TypeChanges) {
	rows, schema, reasons := load(kinetl.NewBuilder(known, changes, kinetl.MetadataColumns), payloads)
	if rows != nil {
		now := s.schema.Join(schema, changes)
		conformed, form, err := kinetl.Conform(rows, schema, now)
		if err != nil { // decoded for a table that is no more: read again
			if fmt.Sprint(known) == fmt.Sprint(s.schema) {
				t.Fatalf("rows built for the table as it is don't fit it: %v", err)
			}
			s.commit(t, payloads, s.schema, changes)
			return
		}
		s.schema = now
		s.batches, s.forms = append(s.batches, conformed), append(s.forms, form)
		s.widen(t)
	}
	s.refused += len(reasons)
}

func (s *stored) widen(t *rapid.T) {
	for i := range s.batches {
		var err error
		if s.batches[i], s.forms[i], err = kinetl.Conform(s.batches[i], s.forms[i], s.schema); err != nil {
			t.Fatalf("stored rows don't fit the widened table: %v", err)
		}
	}
}

// rows leaves out metadata: load counts sequence numbers from the batch's start.
func (s *stored) rows() []string {
	var out []string
	for i, batch := range s.batches {
		for _, row := range rowsOf(batch, s.forms[i]) {
			for _, c := range kinetl.MetadataSchema(kinetl.MetadataColumns) {
				delete(row, c.Name)
			}
			out = append(out, fmt.Sprint(row))
		}
	}
	return out
}

// Wherever batches end, however columns widen in between and however late a reader
// learns of it, the table ends up with the rows that one batch for the final table
// has (R28, R9). Under refuse the reader knows the table: which record of two kinds
// comes first decides there (R29).
func TestBatchesDecideNothing(t *testing.T) {
	caps := kinetl.Schema{{Name: "C", Class: kinetl.Double, Cap: true, Native: "DOUBLE"}, {Name: "d", Class: kinetl.Text, Cap: true, Native: "VARCHAR"}}
	for _, changes := range []kinetl.TypeChanges{kinetl.Allow, kinetl.Refuse} {
		t.Run(map[kinetl.TypeChanges]string{kinetl.Allow: "allow", kinetl.Refuse: "refuse"}[changes], func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				payloads := rapid.SliceOfN(objects(), 1, 16).Draw(t, "records")
				split := &stored{}
				if rapid.Bool().Draw(t, "caps") {
					split.schema = caps
				}
				history := []kinetl.Schema{split.schema}
				for rest := payloads; len(rest) > 0; {
					n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
					known := split.schema
					if changes == kinetl.Allow {
						known = rapid.SampledFrom(history).Draw(t, "known")
					}
					split.commit(t, rest[:n], known, changes)
					history = append(history, split.schema)
					rest = rest[n:]
				}
				whole := &stored{schema: split.schema}
				rows, schema, reasons := load(kinetl.NewBuilder(split.schema, changes, kinetl.MetadataColumns), payloads)
				if rows != nil {
					whole.batches, whole.forms = []arrow.RecordBatch{rows}, []kinetl.Schema{schema}
					whole.widen(t)
				}
				if fmt.Sprint(split.schema) != fmt.Sprint(split.schema.Join(schema, changes)) {
					t.Fatalf("one batch widens the final table %v to %v", split.schema, schema)
				}
				if split.refused != len(reasons) {
					t.Fatalf("%d records refused, in one batch %q", split.refused, reasons)
				}
				if a, b := split.rows(), whole.rows(); !slices.Equal(a, b) {
					t.Fatalf("final table %v\nin batches:\n%s\nin one:\n%s", split.schema, strings.Join(a, "\n"), strings.Join(b, "\n"))
				}
			})
		})
	}
}

func TestConform(t *testing.T) {
	for _, c := range []struct {
		payload  string
		from, to kinetl.Class
		want     string
	}{
		{`1`, kinetl.Int53, kinetl.Int64, "1"},
		{`1`, kinetl.Int53, kinetl.Decimal, "1"},
		{`1`, kinetl.Int53, kinetl.Double, "1"},
		{`9007199254740993`, kinetl.Int64, kinetl.Number, "9007199254740993"},
		{`1e30`, kinetl.Decimal, kinetl.Number, "1" + strings.Repeat("0", 30)},
		{`1e40`, kinetl.Double, kinetl.Number, "1e+40"},
		{`-0.0`, kinetl.Double, kinetl.JSON, "-0"},
		{`1e400`, kinetl.Number, kinetl.JSON, "1e+400"},
		{`true`, kinetl.Bool, kinetl.JSON, "true"},
		{`"a\"b"`, kinetl.String, kinetl.JSON, `"a\"b"`},
		{`"a\"b"`, kinetl.String, kinetl.Text, `a"b`},
		{`{"b": 1}`, kinetl.JSON, kinetl.JSON, `{"b": 1}`},
		{`1.5`, kinetl.Double, kinetl.Text, "1.5"},
		{`[]`, kinetl.Empty, kinetl.JSON, "[]"},
		{`[]`, kinetl.Empty, kinetl.Text, "[]"},
		{`[]`, kinetl.Empty, kinetl.Bool, "NULL"},
		{`[]`, kinetl.Empty, kinetl.Decimal, "NULL"},
		{`[]`, kinetl.Empty, kinetl.String, "NULL"},
	} {
		builder := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone)
		rows, from, _ := load(builder, []string{`{"x":` + c.payload + `}`, `{}`})
		if from[0].Class != c.from {
			t.Fatalf("%s is %s", c.payload, from[0].Class)
		}
		got, schema, err := kinetl.Conform(rows, from, kinetl.Schema{{Name: "other", Class: kinetl.Bool}, {Name: "X", Class: c.to}})
		if err != nil {
			t.Errorf("%s to %s: %v", c.payload, c.to, err)
			continue
		}
		table{schema: schema, rows: rowsOf(got, schema)}.check(t, "X", c.to, c.want, "NULL")
	}
}

// R9: rows that the table can't hold as they are must be read again, not cast.
func TestConformRefusesWhatWouldChangeAValue(t *testing.T) {
	for _, c := range []struct {
		payload string
		to      kinetl.Class
	}{
		{`2.5`, kinetl.Int53}, {`9007199254740993`, kinetl.Int53}, {`9007199254740993`, kinetl.Double}, {`1e30`, kinetl.Int64},
		{`"s"`, kinetl.Number}, {`1`, kinetl.String}, {`1`, kinetl.Bool}, {`[1]`, kinetl.Empty}, {`[1]`, kinetl.Text}, {`"s"`, kinetl.Timestamp},
	} {
		rows, from, _ := load(kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone), []string{`{"x":` + c.payload + `}`})
		if _, _, err := kinetl.Conform(rows, from, kinetl.Schema{{Name: "x", Class: c.to}}); err == nil || !strings.Contains(err.Error(), `column "x"`) {
			t.Errorf("%s to %s: %v", c.payload, c.to, err)
		}
	}
	rows, from, _ := load(kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone), []string{`{"x":1}`})
	if _, _, err := kinetl.Conform(rows, from, kinetl.Schema{{Name: "y", Class: kinetl.Int53}}); err == nil || err.Error() != `column "x" is gone` {
		t.Errorf("a missing column: %v", err)
	}
}

// Metadata is written like the builder writes it, for a table that turned out to
// have columns of somebody else's types.
func TestConformMetadata(t *testing.T) {
	for _, class := range []kinetl.Class{kinetl.JSON, kinetl.Text} {
		for mode, name := range map[kinetl.MetadataMode]string{kinetl.MetadataObject: "kinesisMetadata", kinetl.MetadataColumns: "_kinesis_arrival"} {
			table := kinetl.Schema{{Name: name, Class: class, Cap: true}}
			build := func(schema kinetl.Schema) (arrow.RecordBatch, kinetl.Schema) {
				b := kinetl.NewBuilder(schema, kinetl.Refuse, mode)
				for _, rec := range []kinetl.Record{testRecord, {Sequence: "9"}} {
					if err := b.EndRow(&rec, testShard); err != nil {
						t.Fatal(err)
					}
				}
				rows, sealed, _ := b.Seal()
				return rows, sealed
			}
			direct, want := build(table)
			late, from := build(nil)
			got, schema, err := kinetl.Conform(late, from, table.Join(from, kinetl.Refuse))
			if err != nil {
				t.Fatal(err)
			}
			if a, b := multiset(rowsOf(got, schema)), multiset(rowsOf(direct, want)); !slices.Equal(a, b) {
				t.Errorf("%s as %s: conformed %s, direct %s", name, class, a, b)
			}
		}
	}
}

func TestConformSharesWhatDoesNotChange(t *testing.T) {
	rows, from, _ := load(kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone), []string{`{"x":1,"s":"a"}`})
	got, _, err := kinetl.Conform(rows, from, kinetl.Schema{{Name: "S", Class: kinetl.Text}, {Name: "X", Class: kinetl.Int64}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range from {
		if got.Column(i) != rows.Column(i) {
			t.Errorf("column %s was copied", from[i].Name)
		}
	}
}
