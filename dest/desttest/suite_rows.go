package desttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kinetl/kinetl"
)

var rowCases = []testCase{
	{"R30 rows of large parts are stored in order", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		const n = 10_000
		s.stored(d,
			part(shard0, kinetl.Oldest, at(n), letters, 1, people(1, n, "first")...),
			part(shard0, at(n), at(2*n), letters, n+1, people(n+1, n, "second")...),
		)
		s.wantRows(letters, append(people(1, n, "first"), people(n+1, n, "second")...)...)
		s.wantWatermark(shard0, at(2*n))
	}},
	{"every class is read back as it was stored", everyClass},
	{"absent, null, empty and the word null are different", func(s *suite) {
		d := s.worker()
		schema := kinetl.Schema{{Name: "s", Class: kinetl.String}, {Name: "j", Class: kinetl.JSON}}
		s.prepare(d, schema, kinetl.Refuse)
		s.start(d, shard0)
		rows := []cells{{}, {"s": "", "j": `""`}, {"s": "null", "j": `"null"`}, {"s": "NULL", "j": `{"a":null}`}}
		s.stored(d, part(shard0, kinetl.Oldest, at(4), schema, 1, rows...))
		s.wantRows(schema, rows...)
	}},
	{"parts with other columns each fill theirs", func(s *suite) {
		d := s.worker()
		wide := kinetl.Schema{{Name: "n", Class: kinetl.Int53}, {Name: "who", Class: kinetl.String}, {Name: "extra", Class: kinetl.Bool}}
		s.prepare(d, wide, kinetl.Refuse)
		s.start(d, shard0, shard1)
		turned := kinetl.Schema{wide[2], wide[0]}
		s.stored(d,
			part(shard0, kinetl.Oldest, at(1), letters, 1, cells{"n": "1", "who": "a"}),
			part(shard1, kinetl.Oldest, at(2), turned, 2, cells{"n": "2", "extra": "true"}),
			part(shard0, at(1), at(3), letters, 3, cells{"n": "3", "who": "c"}),
		)
		s.wantRows(wide, cells{"n": "1", "who": "a"}, cells{"n": "2", "extra": "true"}, cells{"n": "3", "who": "c"})
	}},
	{"dead letters are stored with their bytes in the same step", deadLettersExact},
	{"R13 one bad row in a thousand is named and nothing is stored", oneBadRow},
	{"a 1 MiB value is stored", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		row := cells{"n": "1", "who": strings.Repeat("wide ", 1<<20/5)}
		s.stored(d, part(shard0, kinetl.Oldest, at(1), letters, 1, row))
		s.wantRows(letters, row)
	}},
}

func everyClass(s *suite) {
	d := s.worker()
	schema := kinetl.Schema{
		{Name: "empty", Class: kinetl.Empty}, {Name: "bool", Class: kinetl.Bool}, {Name: "int53", Class: kinetl.Int53},
		{Name: "int64", Class: kinetl.Int64}, {Name: "decimal", Class: kinetl.Decimal}, {Name: "double", Class: kinetl.Double},
		{Name: "number", Class: kinetl.Number}, {Name: "string", Class: kinetl.String}, {Name: "json", Class: kinetl.JSON},
		{Name: "instant", Class: kinetl.Timestamp}, {Name: "meta", Class: kinetl.Metadata},
	}
	got := s.prepare(d, schema, kinetl.Refuse)
	if diff := schema.Differs(got); diff != "" {
		s.Fatalf("prepared another schema: %s", diff)
	}
	s.start(d, shard0)
	meta := `{"stream":"orders","shardId":"shardId-000000000000","approximateArrival":"2026-01-02T03:04:05.678Z","partitionKey":"k","sequenceNumber":"1","subSequenceNumber":3,"shardedSequenceNumber":"1.3"}`
	rows := []cells{
		{"empty": "{}", "bool": "true", "int53": "9007199254740992", "int64": "9223372036854775807",
			"decimal": strings.Repeat("9", 38), "double": "0.1", "number": "0.10000000000000000000000000000000001",
			"string": "caf\u00e9 \U0001F600 \"quoted\" \\ \n tab\t", "json": `{"b":[1,2.50,"x"],"a":{"c":null}}`, "instant": "2026-01-02T03:04:05.678901Z", "meta": meta},
		{},
		{"empty": "[]", "bool": "false", "int53": "-9007199254740992", "int64": "-9223372036854775808",
			"decimal": "-" + strings.Repeat("9", 38), "double": "1.7976931348623157e+308", "number": "-1e+400",
			"string": "", "json": `"text"`, "instant": "1970-01-01T00:00:00.000000Z"},
		{"double": "-0", "string": "'; DROP TABLE orders; --", "json": "[]", "decimal": "0", "instant": "9999-12-31T23:59:59.999999Z"},
		{"double": "5e-324", "int53": "0", "json": "123"},
	}
	s.stored(d, part(shard0, kinetl.Oldest, at(len(rows)), schema, 1, rows...))
	s.wantRows(schema, rows...)
}

func deadLettersExact(s *suite) {
	d := s.worker()
	s.prepare(d, letters, kinetl.Refuse)
	s.start(d, shard0, shard1)
	when := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	sequence := "495903382714906082" + strings.Repeat("7", 38)
	want := []kinetl.DeadLetter{
		{Sequence: sequence, Sub: 3, Arrived: when, PartitionKey: "key 'q' \u00e9", Reason: "not JSON: it's bad", Payload: []byte("\x00\xff\xfe{\"a\":\x00}"), At: when.Add(time.Second)},
		{Sequence: "2", Sub: 18446744073709551615, Arrived: when, PartitionKey: "", Reason: "empty", Payload: nil, At: when},
	}
	p := part(shard0, kinetl.Oldest, at(2), letters, 1, people(1, 1, "a")...)
	p.DeadLetters = want
	stale := part(shard1, at(5), at(6), nil, 0) // fenced, with its dead letter
	stale.DeadLetters = []kinetl.DeadLetter{{Sequence: "6", Reason: "never", Payload: []byte("x"), Arrived: when, At: when}}
	s.wantFenced(s.commit(d, p, stale), map[kinetl.ShardID]kinetl.Position{shard1: kinetl.Oldest})
	s.stored(d, p) // a repeat stores no second copy

	got := s.Read(s.T, s.table, letters).DeadLetters
	if len(got) != len(want) {
		s.Fatalf("%d dead letters stored, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Shard != shard0 || g.Sequence != w.Sequence || g.Sub != w.Sub || !g.Arrived.Equal(w.Arrived) || g.PartitionKey != w.PartitionKey ||
			g.Reason != w.Reason || !bytes.Equal(g.Payload, w.Payload) || !g.At.Equal(w.At) {
			s.Errorf("dead letter %d is %+v, want %+v of %s", i, g, w, shard0)
		}
	}
	s.wantRows(letters, people(1, 1, "a")...)
}

func oneBadRow(s *suite) {
	s.need(s.AddColumn != nil, "add a column as somebody else")
	d := s.worker()
	s.prepare(d, letters, kinetl.Refuse)
	s.AddColumn(s.T, s.table, "small", "INTEGER", false)
	schema := s.prepare(d, letters, kinetl.Refuse)
	s.start(d, shard0, shard1)

	rows := people(1, 1000, "a")
	for i := range rows {
		rows[i]["small"] = strconv.Itoa(i)
	}
	good := part(shard1, kinetl.Oldest, at(1), schema, 1, cells{"n": "0", "who": "other shard"})
	for _, bad := range [][]int{{637}, {0, 1, 500, 999}} {
		for _, i := range bad {
			rows[i]["small"] = "3000000000"
		}
		_, err := d.Commit(context.Background(), s.table, []kinetl.Part{good, part(shard0, kinetl.Oldest, at(1000), schema, 1, rows...)})
		var rejected *kinetl.RejectedError
		if !errors.As(err, &rejected) {
			s.Fatalf("commit: %v, want *RejectedError", err)
		}
		var got, want []kinetl.Position
		for _, r := range rejected.Rows {
			got = append(got, r.Position)
			if r.Reason == "" {
				s.Errorf("row %s was refused without a reason", r.Position)
			}
		}
		for _, i := range bad {
			want = append(want, at(i+1))
		}
		if rejected.Shard != shard0 || fmt.Sprint(got) != fmt.Sprint(want) {
			s.Fatalf("refused %v of %s, want %v of %s", got, rejected.Shard, want, shard0)
		}
		s.wantRows(schema)
		s.wantWatermark(shard0, kinetl.Oldest)
		s.wantWatermark(shard1, kinetl.Oldest)
		for _, i := range bad {
			rows[i]["small"] = "1"
		}
	}

	// The engine reads again, with that record as a dead letter.
	p := part(shard0, kinetl.Oldest, at(1000), schema, 1, rows[1:]...)
	p.DeadLetters = []kinetl.DeadLetter{{Sequence: "1", Reason: "refused", Payload: []byte("{}"), At: time.Unix(1, 0).UTC(), Arrived: time.Unix(1, 0).UTC()}}
	s.stored(d, p, good)
	got := s.Read(s.T, s.table, schema)
	if len(got.Rows) != 1000 || len(got.DeadLetters) != 1 {
		s.Fatalf("%d rows and %d dead letters stored, want 1000 and 1", len(got.Rows), len(got.DeadLetters))
	}
}
