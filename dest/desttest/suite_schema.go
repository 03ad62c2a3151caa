package desttest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kinetl/kinetl"
)

var schemaCases = []testCase{
	{"R28 stored rows follow every widening exactly", widenings},
	{"R29 a change of kind needs the policy", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		text := kinetl.Schema{{Name: "n", Class: kinetl.String}}
		if got := s.prepare(d, text, kinetl.Refuse); got[0].Class != kinetl.Int53 {
			s.Fatalf("under refuse the column became %s", got[0].Class)
		}
		if got := s.prepare(d, text, kinetl.Allow); got[0].Class != kinetl.JSON {
			s.Fatalf("under allow the column became %s, want json", got[0].Class)
		}
	}},
	{"R9 a batch for an older schema is refused and nothing stored", func(s *suite) {
		d, other := s.worker(), s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0, shard1)
		stale := part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "a")...)
		s.prepare(other, kinetl.Schema{{Name: "n", Class: kinetl.Number}}, kinetl.Refuse)
		_, err := d.Commit(context.Background(), s.table, []kinetl.Part{part(shard1, kinetl.Oldest, at(1), nil, 0), stale})
		var changed *kinetl.SchemaChangedError
		if !errors.As(err, &changed) {
			s.Fatalf("commit: %v, want *SchemaChangedError", err)
		}
		s.wantWatermark(shard0, kinetl.Oldest)
		s.wantWatermark(shard1, kinetl.Oldest)
		now := s.prepare(d, letters, kinetl.Refuse)
		s.stored(d, part(shard0, kinetl.Oldest, at(1), now, 1, people(1, 1, "a")...))
		s.wantRows(now, people(1, 1, "a")...)
	}},
	{"R9 int53 and int64 are different although their type is one", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		got := s.prepare(d, kinetl.Schema{{Name: "n", Class: kinetl.Int64}}, kinetl.Refuse)
		if got[0].Class != kinetl.Int64 {
			s.Fatalf("the class is %s, want int64", got[0].Class)
		}
		_, err := d.Commit(context.Background(), s.table, []kinetl.Part{part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "a")...)})
		var changed *kinetl.SchemaChangedError
		if !errors.As(err, &changed) {
			s.Fatalf("commit: %v, want *SchemaChangedError", err)
		}
	}},
	{"R12 prepare is idempotent and keeps the order of columns", func(s *suite) {
		d := s.worker()
		first := s.prepare(d, letters, kinetl.Refuse)
		more := kinetl.Schema{{Name: "z", Class: kinetl.Bool}, {Name: "WHO", Class: kinetl.String}, {Name: "a", Class: kinetl.Double}, {Name: "void", Class: kinetl.Unset}}
		want := append(append(kinetl.Schema(nil), first...), more[0], more[2])
		for range 2 {
			if got := s.prepare(d, more, kinetl.Refuse); fmt.Sprint(got) != fmt.Sprint(want) {
				s.Fatalf("prepared %v, want %v", got, want)
			}
		}
	}},
	{"R12 a column that somebody else adds does no harm", foreignColumn},
	{"R12 two workers that evolve at once make one column each", func(s *suite) {
		a, b := s.worker(), s.worker()
		for round := range 10 {
			s.table = fmt.Sprintf("evolve%d", round)
			want := kinetl.Schema{{Name: "n", Class: kinetl.Int53}, {Name: "Extra", Class: kinetl.String}, {Name: "wide", Class: kinetl.Number}}
			if round%2 == 0 {
				s.prepare(a, kinetl.Schema{{Name: "n", Class: kinetl.Int53}, {Name: "wide", Class: kinetl.Double}}, kinetl.Refuse)
			}
			together(s, a, b, func(i int, d kinetl.Destination) {
				mine := append(kinetl.Schema(nil), want...)
				if i == 1 {
					mine[1].Name = "EXTRA"
				}
				if _, err := d.Prepare(context.Background(), s.table, mine, kinetl.Refuse); err != nil {
					s.Errorf("prepare: %v", err)
				}
			})
			got := s.prepare(a, nil, kinetl.Refuse)
			if len(got) != 3 || want.Differs(got) != "" {
				s.Fatalf("the table has %v, want %v", got, want)
			}
		}
	}},
	{"R9 rows stay exact while another worker widens their column", widenUnderLoad},
	{"R12 any name is a column's and a table's name", names},
	{"R28 values go into somebody else's columns unchanged or not at all", caps},
	{"R28 a column that can't be altered is a cap and holds up no other", func(s *suite) {
		s.need(s.Unalterable != nil, "make a column unalterable")
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		s.Unalterable(s.T, s.table, "n")
		got := s.prepare(d, kinetl.Schema{{Name: "n", Class: kinetl.Number}, {Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
		if got[0].Class != kinetl.Int53 || !got[0].Cap {
			s.Fatalf("column n is %+v, want int53 and a cap", got[0])
		}
		if i := got.Index("new"); i < 0 || got[i].Cap {
			s.Fatalf("the other column was not added: %+v", got)
		}
		s.stored(d, part(shard0, kinetl.Oldest, at(1), got, 1, cells{"n": "1", "who": "a", "new": "true"}))
		s.wantRows(got, cells{"n": "1", "who": "a", "new": "true"})
	}},
}

// widenings stores values of each class, widens step by step and looks each time.
func widenings(s *suite) {
	type step struct {
		class kinetl.Class
		want  map[string]string // what the values read now; a value that is left out became NULL
	}
	ints := map[string]string{"0": "0", "-7": "-7", "9007199254740992": "9007199254740992"}
	bigs := map[string]string{"9223372036854775807": "9223372036854775807", "-1": "-1"}
	huge := strings.Repeat("9", 38)
	doubles := map[string]string{"0.1": "0.1", "-2.25": "-2.25", "1e+300": "1e+300", "5e-324": "5e-324", "1e+16": "1e+16", "123456789012345.6": "123456789012345.6", "-0": "-0"}
	quoted := map[string]string{"it's \"x\"": `"it's \"x\""`, "": `""`, "1": `"1"`, "null": `"null"`, "a\\b\n\u00e9<&>": "\"a\\\\b\\n\u00e9<&>\""}
	empties := map[string]string{"{}": "{}", "[]": "[]"}
	paths := [][]step{
		{{kinetl.Int53, ints}, {kinetl.Int64, ints}, {kinetl.Decimal, ints}, {kinetl.Number, ints}, {kinetl.JSON, ints}},
		{{kinetl.Int53, ints}, {kinetl.Double, ints}, {kinetl.Number, ints}, {kinetl.JSON, ints}},
		{{kinetl.Int64, bigs}, {kinetl.Decimal, bigs}, {kinetl.JSON, bigs}},
		{{kinetl.Int64, bigs}, {kinetl.Number, bigs}},
		{{kinetl.Int64, bigs}, {kinetl.JSON, bigs}},
		{{kinetl.Decimal, map[string]string{huge: huge, "-" + huge: "-" + huge}}, {kinetl.Number, map[string]string{huge: huge, "-" + huge: "-" + huge}}, {kinetl.JSON, map[string]string{huge: huge, "-" + huge: "-" + huge}}},
		{{kinetl.Double, doubles}, {kinetl.Number, doubles}, {kinetl.JSON, doubles}},
		{{kinetl.Double, doubles}, {kinetl.JSON, doubles}},
		{{kinetl.Bool, map[string]string{"true": "true", "false": "false"}}, {kinetl.JSON, map[string]string{"true": "true", "false": "false"}}},
		{{kinetl.String, quoted}, {kinetl.JSON, quoted}},
		{{kinetl.Empty, empties}, {kinetl.JSON, empties}},
		{{kinetl.Empty, empties}, {kinetl.Bool, nil}, {kinetl.JSON, nil}},
		{{kinetl.Empty, empties}, {kinetl.Int53, nil}},
		{{kinetl.Empty, empties}, {kinetl.Double, nil}},
		{{kinetl.Empty, empties}, {kinetl.String, nil}},
	}
	for i, path := range paths {
		s.table = fmt.Sprintf("widen%d", i)
		d := s.worker()
		schema := kinetl.Schema{{Name: "id", Class: kinetl.String}, {Name: "v", Class: path[0].class}}
		s.prepare(d, schema, kinetl.Refuse)
		s.start(d, shard0)
		rows := []cells{{"id": "null"}}
		for value := range path[0].want {
			rows = append(rows, cells{"id": value, "v": value})
		}
		s.stored(d, part(shard0, kinetl.Oldest, at(len(rows)), schema, 1, rows...))
		for n, step := range path {
			got := s.prepare(d, kinetl.Schema{{Name: "v", Class: step.class}}, kinetl.Allow)
			if got[1].Class != step.class || got[1].Cap {
				s.Fatalf("step %d of path %d: column is %+v, want %s", n, i, got[1], step.class)
			}
			for r := range rows[1:] {
				value := rows[1+r]["id"]
				if text, ok := step.want[value]; ok && !(n == 0 && step.class == kinetl.String) {
					rows[1+r]["v"] = text
				} else if !ok {
					delete(rows[1+r], "v")
				}
			}
			s.wantRows(got, rows...)
		}
	}
}

// widenUnderLoad: one worker commits as the engine does, repeating failed commits and
// preparing again when told to, while another widens the column under it.
func widenUnderLoad(s *suite) {
	loader, other := s.worker(), s.worker()
	ctx := context.Background()
	s.prepare(loader, letters, kinetl.Refuse)
	s.start(loader, shard0)
	const n = 40
	var want []cells
	together(s, loader, other, func(i int, d kinetl.Destination) {
		if i == 1 {
			for _, class := range []kinetl.Class{kinetl.Int64, kinetl.Decimal, kinetl.Number, kinetl.JSON} {
				eventually(s.T, func() (kinetl.Schema, error) {
					return d.Prepare(ctx, s.table, kinetl.Schema{{Name: "n", Class: class}, {Name: "new " + class.String(), Class: class}}, kinetl.Allow)
				})
			}
			return
		}
		schema, after := letters, kinetl.Oldest
		for seq := range n {
			row := people(seq, 1, "a")
			eventually(s.T, func() (kinetl.CommitReport, error) {
				report, err := d.Commit(ctx, s.table, []kinetl.Part{part(shard0, after, at(seq), schema, seq, row...)})
				var changed *kinetl.SchemaChangedError
				if errors.As(err, &changed) {
					now, prepareErr := d.Prepare(ctx, s.table, letters, kinetl.Allow)
					if prepareErr == nil {
						schema = now
					}
				}
				if len(report.Fenced) > 0 {
					s.Errorf("fenced: %v", report.Fenced)
				}
				return report, err
			})
			want, after = append(want, row...), at(seq)
		}
	})
	s.wantRows(s.prepare(loader, nil, kinetl.Refuse), want...)
}

func foreignColumn(s *suite) {
	s.need(s.AddColumn != nil, "add a column as somebody else")
	d := s.worker()
	s.prepare(d, letters, kinetl.Refuse)
	s.start(d, shard0)
	s.AddColumn(s.T, s.table, "comment", "VARCHAR", false)
	s.stored(d, part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "a")...))

	s.AddColumn(s.T, s.table, "needed", "BIGINT", true)
	p := part(shard0, at(1), at(2), letters, 2, people(2, 1, "b")...)
	_, err := d.Commit(context.Background(), s.table, []kinetl.Part{p})
	if err != nil { // an engine may tell that null won't go in; Prepare settles it
		var changed *kinetl.SchemaChangedError
		if !errors.As(err, &changed) {
			s.Fatalf("commit: %v, want success or *SchemaChangedError", err)
		}
		s.prepare(d, letters, kinetl.Refuse)
		s.stored(d, p)
	}
	schema := s.prepare(d, letters, kinetl.Refuse)
	for _, name := range []string{"comment", "needed"} {
		if i := schema.Index(name); i < 0 || !schema[i].Cap {
			s.Fatalf("column %q is not a cap in %+v", name, schema)
		}
	}
	got := s.Read(s.T, s.table, schema).Rows
	if len(got) != 2 || got[1].Cells["who"] != "b" {
		s.Fatalf("rows %v, want both", got)
	}
}

// names are words and shapes that engines trip over (reserved words of all four,
// quoting, case, length).
func names(s *suite) {
	long := s.LongName
	if long == 0 {
		long = 200
	}
	words := []string{
		"select", "table", "order", "group", "user", "start", "trigger", "dual", "rowid", "default", "values", "primary",
		"with space", " leading", `quo"te`, `"`, `""`, "it's", "back`tick", "dot.ted", "semi;colon", "per%cent", "que?stion", "dollar$1",
		"caf\u00e9", "CAF\u00c9", "\u65e5\u672c\u8a9e", "\U0001F600", "back\\slash", "new\nline", "tab\t", "-- comment", "/* comment */",
		"ctid", "xmin", "tableoid", "oid", "0digit", "c0", "c1", "place", "appended_rows", "_kinetl_batch", "MiXed", strings.Repeat("x", long-1) + "y", strings.Repeat("x", long-1) + "z",
	}
	var schema kinetl.Schema
	row := cells{}
	for i, w := range words {
		schema = append(schema, kinetl.Column{Name: w, Class: kinetl.Int53})
		row[w] = fmt.Sprint(i)
	}
	d := s.worker()
	s.prepare(d, schema[:1], kinetl.Refuse)
	got := s.prepare(d, append(schema[:len(schema):len(schema)], kinetl.Column{Name: "mIxED", Class: kinetl.Int53}), kinetl.Refuse)
	if len(got) != len(schema) || schema.Differs(got) != "" {
		s.Fatalf("%d columns, want %d: %s", len(got), len(schema), schema.Differs(got))
	}
	s.start(d, shard0)
	s.stored(d, part(shard0, kinetl.Oldest, at(1), schema, 1, row))
	s.wantRows(schema, row)
	wide := append(kinetl.Schema(nil), schema...)
	for i := range wide {
		wide[i].Class = kinetl.Number
	}
	s.wantRows(s.prepare(d, wide, kinetl.Refuse), row)

	for _, table := range words {
		if len(table) > long-len("_dead_letters") {
			continue
		}
		s.table = table
		s.nameTable(d)
	}
	s.table = "mIxED" // one of the words in another case: the same table and watermarks
	s.prepare(d, letters, kinetl.Refuse)
	if got := s.claim(d, kinetl.Claim{Shard: shard0, Start: kinetl.Oldest}); got.Through[shard0] != at(1) {
		s.Fatalf("under another case the watermark is %q", got.Through[shard0])
	}
}

// nameTable goes through every kind of statement with the suite's table.
func (s *suite) nameTable(d kinetl.Destination) {
	s.Helper()
	s.prepare(d, letters[:1], kinetl.Refuse)
	s.prepare(d, letters, kinetl.Refuse)
	s.start(d, shard0)
	p := part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "a")...)
	p.DeadLetters = []kinetl.DeadLetter{{Sequence: "1", Reason: "x", Payload: []byte("x")}}
	s.stored(d, p)
	wide := s.prepare(d, kinetl.Schema{{Name: "n", Class: kinetl.Double}}, kinetl.Refuse)
	s.wantRows(wide, people(1, 1, "a")...)
	if got := s.Read(s.T, s.table, letters).DeadLetters; len(got) != 1 {
		s.Fatalf("table %q: %d dead letters, want 1", s.table, len(got))
	}
}

// caps: the value of each column is stored exactly or its row refused.
func caps(s *suite) {
	s.need(s.AddColumn != nil, "add a column as somebody else")
	for i, c := range []struct {
		typ   string
		class kinetl.Class
		good  []string
		bad   []string
	}{
		{"INTEGER", kinetl.Int64, []string{"0", "-2147483648", "2147483647"}, []string{"2147483648", "-9223372036854775808"}},
		{"DECIMAL(10,2)", kinetl.Number, []string{"1.5", "0.25", "-12345678", "1e+2", "12.50"}, []string{"1.234", "123456789", "1e-3", "1e+300", "0.001"}},
		{"REAL", kinetl.Double, []string{"0.5", "-2", "1e+30"}[:2], []string{"0.1", "1e+300"}},
		{"DATE", kinetl.Text, []string{"2026-02-28"}, []string{"2026-02-30", "soon", "2026-02-28 12:00:00", "5"}},
	} {
		s.table = fmt.Sprintf("caps%d", i)
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.AddColumn(s.T, s.table, "theirs", c.typ, false)
		schema := s.prepare(d, kinetl.Schema{{Name: "theirs", Class: kinetl.JSON}}, kinetl.Allow)
		theirs := schema[schema.Index("theirs")]
		if !theirs.Cap || theirs.Class != c.class || theirs.Native == "" {
			s.Fatalf("a column of type %s is %+v, want a cap of class %s with its native type", c.typ, theirs, c.class)
		}
		s.start(d, shard0)
		rows := []cells{{"n": "0"}}
		for _, v := range c.good {
			rows = append(rows, cells{"n": "0", "theirs": v})
		}
		s.stored(d, part(shard0, kinetl.Oldest, at(len(rows)), schema, 1, rows...))
		for n, got := range s.Read(s.T, s.table, schema).Rows {
			if want := rows[n]["theirs"]; !sameNumber(got.Cells["theirs"], want) {
				s.Errorf("%s: stored %q for %q", c.typ, got.Cells["theirs"], want)
			}
		}
		for _, v := range c.bad {
			p := part(shard0, at(len(rows)), at(1000), schema, 100, cells{"theirs": c.good[0]}, cells{"theirs": v})
			_, err := d.Commit(context.Background(), s.table, []kinetl.Part{p})
			var rejected *kinetl.RejectedError
			if !errors.As(err, &rejected) || len(rejected.Rows) != 1 || rejected.Rows[0].Position != at(101) {
				s.Errorf("%s: %q gave %v, want its row refused", c.typ, v, err)
			}
		}
	}
}
