package desttest

import (
	"context"
	"errors"
	"math/big"
	"reflect"
	"time"

	"github.com/kinetl/kinetl"
)

var faultCases = []testCase{
	{"R10 each statement of commit fails in turn", func(s *suite) {
		s.need(s.FailStatement != nil, "make a statement fail")
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0, shard1)
		p := part(shard0, kinetl.Oldest, at(2), letters, 1, people(1, 2, "a")...)
		p.DeadLetters = []kinetl.DeadLetter{{Sequence: "2", Reason: "x", Payload: []byte("x"), At: time.Unix(1, 0), Arrived: time.Unix(1, 0)}}
		q := part(shard1, kinetl.Oldest, at(2), letters, 1, people(1, 1, "b")...)
		s.failEach(d, func(ctx context.Context) error {
			report, err := d.Commit(ctx, s.table, []kinetl.Part{p, q})
			if err == nil && len(report.Fenced) > 0 {
				s.Fatalf("fenced %v after a failure that stored nothing", report.Fenced)
			}
			return err
		})
		s.wantRows(letters, append(people(1, 2, "a"), people(1, 1, "b")...)...)
		s.wantWatermark(shard0, at(2))
		s.wantWatermark(shard1, at(2))
	}},
	{"R10 each statement of claim fails in turn", func(s *suite) {
		s.need(s.FailStatement != nil, "make a statement fail")
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.claim(d, kinetl.Claim{Shard: shard0, Start: at(1)})
		s.failEach(d, func(ctx context.Context) error {
			_, err := d.Claim(ctx, s.table, []kinetl.Claim{
				{Shard: shard2, Start: kinetl.Oldest, Parents: []kinetl.ParentClaim{{Shard: shard0, Ended: true}, {Shard: shard1, Ended: true}}},
			})
			return err
		})
		s.wantWatermark(shard2, kinetl.Oldest)
		s.wantWatermark(shard0, kinetl.End)
	}},
	{"R10 each statement of prepare fails in turn", func(s *suite) {
		s.need(s.FailStatement != nil, "make a statement fail")
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		s.stored(d, part(shard0, kinetl.Oldest, at(2), letters, 1, people(1, 2, "a")...))
		s.failEach(d, func(ctx context.Context) error {
			_, err := d.Prepare(ctx, s.table, kinetl.Schema{{Name: "n", Class: kinetl.Number}, {Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
			return err
		})
		got := s.prepare(d, nil, kinetl.Refuse)
		if got[0].Class != kinetl.Number || got.Index("new") < 0 {
			s.Fatalf("prepared %+v", got)
		}
		s.wantRows(got, people(1, 2, "a")...)
	}},
	{"R10 each statement of move fails in turn", func(s *suite) {
		s.need(s.FailStatement != nil, "make a statement fail")
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0, shard1)
		s.failEach(d, func(ctx context.Context) error {
			return d.Move(ctx, s.table, []kinetl.Move{{Shard: shard0, From: kinetl.Oldest, To: at(3)}, {Shard: shard1, From: kinetl.Oldest, To: at(4)}}, "skip")
		})
		s.wantWatermark(shard0, at(3))
		s.wantWatermark(shard1, at(4))
	}},
	{"R7 a commit whose answer was lost is stored once when repeated", func(s *suite) {
		s.need(s.LoseCommit != nil, "lose the answer of a commit")
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		p := part(shard0, kinetl.Oldest, at(2), letters, 1, people(1, 2, "a")...)
		p.DeadLetters = []kinetl.DeadLetter{{Sequence: "2", Reason: "x", Payload: []byte("x")}}
		s.LoseCommit()
		if _, err := d.Commit(context.Background(), s.table, []kinetl.Part{p}); err == nil {
			s.Fatal("the lost answer was a success")
		}
		s.stored(d, p)
		s.stored(d, part(shard0, at(2), at(3), letters, 3, people(3, 1, "a")...))
		s.wantRows(letters, people(1, 3, "a")...)
		if got := s.Read(s.T, s.table, letters).DeadLetters; len(got) != 1 {
			s.Fatalf("%d dead letters, want 1", len(got))
		}
	}},
	{"a call whose context has ended stores nothing", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(kinetl.ErrLeaseLost)
		p := part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "a")...)
		if _, err := d.Commit(ctx, s.table, []kinetl.Part{p}); err == nil {
			s.Fatal("commit succeeded")
		}
		s.wantRows(letters)
		s.stored(d, p)
		s.wantRows(letters, people(1, 1, "a")...)
	}},
}

// failEach makes the first, second, ... statement of a call fail until the call has
// no more of them, and expects each time that nothing was stored.
func (s *suite) failEach(d kinetl.Destination, call func(context.Context) error) {
	s.Helper()
	ctx := context.Background()
	schema := s.prepare(d, nil, kinetl.Refuse)
	before := s.Read(s.T, s.table, schema)
	for n := 1; ; n++ {
		s.FailStatement(n)
		err := call(ctx)
		s.FailStatement(0)
		if err == nil {
			if n == 1 {
				s.Fatal("no statement failed: the harness injects nothing")
			}
			return
		}
		var typed *kinetl.RejectedError
		if errors.As(err, &typed) {
			s.Fatalf("a failing statement was taken for a bad row: %v", err)
		}
		if now := s.prepare(d, nil, kinetl.Refuse); !reflect.DeepEqual(now, schema) {
			s.Fatalf("statement %d failed (%v) and left columns %v, want %v", n, err, now, schema)
		}
		if after := s.Read(s.T, s.table, schema); !reflect.DeepEqual(after, before) {
			s.Fatalf("statement %d failed (%v) and left %+v, want %+v", n, err, after, before)
		}
		if n > 200 {
			s.Fatalf("still failing at statement %d: %v", n, err)
		}
	}
}

// sameNumber compares numbers by value and anything else as text: an engine prints
// 1.5 in DECIMAL(10,2) as 1.50.
func sameNumber(a, b string) bool {
	x, xok := new(big.Rat).SetString(a)
	y, yok := new(big.Rat).SetString(b)
	return a == b || xok && yok && x.Cmp(y) == 0
}
