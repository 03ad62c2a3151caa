package desttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kinetl/kinetl"
)

var watermarkCases = []testCase{
	{"R6 claim inserts at start and a stored watermark wins", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		got := s.claim(d, kinetl.Claim{Shard: shard0, Start: at(5)})
		if got.Through[shard0] != at(5) {
			s.Fatalf("claimed at %q, want the start", got.Through[shard0])
		}
		got = s.claim(d, kinetl.Claim{Shard: shard0, Start: kinetl.Oldest}, kinetl.Claim{Shard: shard1, Start: kinetl.Oldest})
		want := map[kinetl.ShardID]kinetl.Position{shard0: at(5), shard1: kinetl.Oldest}
		if !maps.Equal(got.Through, want) {
			s.Fatalf("claimed %v, want %v", got.Through, want)
		}
	}},
	{"R6 claim without a start leaves out a missing row", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		got := s.claim(d, kinetl.Claim{Shard: shard0}, kinetl.Claim{Shard: shard1})
		if want := (map[kinetl.ShardID]kinetl.Position{shard0: kinetl.Oldest}); !maps.Equal(got.Through, want) {
			s.Fatalf("claimed %v, want %v", got.Through, want)
		}
		s.wantWatermark(shard1, "")
	}},
	{"R15 the sink's id is the same for every worker and call", func(s *suite) {
		a, b := s.worker(), s.worker()
		s.prepare(a, letters, kinetl.Refuse)
		first := s.claim(a, kinetl.Claim{Shard: shard0, Start: kinetl.Oldest}).Sink
		second := s.claim(b, kinetl.Claim{Shard: shard1, Start: kinetl.Oldest}).Sink
		if first == "" || first != second {
			s.Fatalf("sinks %q and %q, want one id", first, second)
		}
	}},
	{"R6 commit never creates a watermark row", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		got := s.commit(d, part(shard0, kinetl.Oldest, at(1), letters, 1, people(1, 1, "a")...))
		s.wantFenced(got, map[kinetl.ShardID]kinetl.Position{shard0: ""})
		s.wantRows(letters)
		s.wantWatermark(shard0, "")
	}},
	{"R7 a chain is applied, a repeat skipped, an overlap fenced, shard by shard", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0, shard1, shard2)
		first := part(shard0, kinetl.Oldest, at(2), letters, 1, people(1, 2, "a")...)
		s.stored(d, first)

		got := s.commit(d,
			first, // stored already
			part(shard0, at(2), at(3), letters, 3, people(3, 1, "a")...), // extends
			part(shard1, at(9), at(11), letters, 10, people(10, 2, "gap")...),
			part(shard1, at(11), at(12), letters, 12, people(12, 1, "gap")...), // chains to what is fenced
			part(shard2, kinetl.Oldest, at(20), letters, 20, people(20, 1, "c")...),
		)
		s.wantFenced(got, map[kinetl.ShardID]kinetl.Position{shard1: kinetl.Oldest})
		want := append(people(1, 3, "a"), people(20, 1, "c")...)
		s.wantRows(letters, want...)
		s.wantWatermark(shard0, at(3))
		s.wantWatermark(shard1, kinetl.Oldest)
		s.wantWatermark(shard2, at(20))

		got = s.commit(d, part(shard0, at(2), at(4), letters, 3, people(3, 2, "overlap")...))
		s.wantFenced(got, map[kinetl.ShardID]kinetl.Position{shard0: at(3)})
		s.wantRows(letters, want...)
	}},
	{"R7 empty parts move watermarks", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		s.stored(d, part(shard0, kinetl.Oldest, at(7), nil, 0))
		s.stored(d, part(shard0, at(7), at(9), letters, 0))
		s.wantWatermark(shard0, at(9))
		s.wantRows(letters)
		s.commit(d) // no parts at all
	}},
	{"R8 a child waits for the end of every listed parent", endsBeforeChildren},
	{"R8 claim sets the end of a parent that another system finished", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.claim(d, kinetl.Claim{Shard: shard0, Start: at(4)})
		s.claim(d, kinetl.Claim{Shard: shard2, Start: kinetl.Oldest, Parents: []kinetl.ParentClaim{
			{Shard: shard0, Ended: true}, {Shard: shard1, Ended: true},
		}})
		s.wantWatermark(shard0, kinetl.End)
		s.wantWatermark(shard1, kinetl.End)
		gaps := s.Read(s.T, s.table, letters).Gaps
		if len(gaps) != 1 || gaps[0].Shard != shard0 || gaps[0].From != at(4) || gaps[0].To != kinetl.End || gaps[0].Reason != EndedElsewhere {
			s.Fatalf("gaps %+v, want the records of %s after 4", gaps, shard0)
		}
	}},
	{"R14 move is compare-and-set for all shards and recorded", moves},
	{"R24 an accepted gap is recorded with its part, and once", acceptedGap},
	{"R1 a watermark of another application is refused until adopted", otherApplication},
	{"R1 a re-created stream has watermarks of its own", func(s *suite) {
		d := s.worker()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		s.stored(d, part(shard0, kinetl.Oldest, kinetl.End, letters, 1, people(1, 1, "old")...))
		again := shard0
		again.Created++
		s.start(d, again)
		s.stored(d, part(again, kinetl.Oldest, at(1), letters, 1, people(1, 1, "new")...))
		s.wantWatermark(shard0, kinetl.End)
		s.wantWatermark(again, at(1))
		s.wantRows(letters, cells{"n": "1", "who": "old"}, cells{"n": "1", "who": "new"})
	}},
	{"R6 two workers that claim at once get one row", func(s *suite) {
		a, b := s.worker(), s.worker()
		s.prepare(a, letters, kinetl.Refuse)
		for round := range 10 {
			shard := shard0.Sibling(fmt.Sprintf("shardId-%012d", 100+round))
			var got [2]kinetl.Claimed
			together(s, a, b, func(i int, d kinetl.Destination) {
				got[i] = eventually(s.T, func() (kinetl.Claimed, error) {
					return d.Claim(context.Background(), s.table, []kinetl.Claim{{Shard: shard, Start: at(i + 1)}})
				})
			})
			if got[0].Through[shard] == "" || got[0].Through[shard] != got[1].Through[shard] {
				s.Fatalf("claimed %q and %q, want one position", got[0].Through[shard], got[1].Through[shard])
			}
			if got[0].Sink != got[1].Sink {
				s.Fatalf("sinks %q and %q, want one", got[0].Sink, got[1].Sink)
			}
			s.wantWatermark(shard, got[0].Through[shard])
		}
	}},
	{"R7 of two workers that commit one shard at once one wins", twoWorkersCommit},
	{"R7 two workers commit different shards at once", func(s *suite) {
		a, b := s.worker(), s.worker()
		s.prepare(a, letters, kinetl.Refuse)
		s.start(a, shard0, shard1)
		const rounds = 10
		together(s, a, b, func(i int, d kinetl.Destination) {
			shard := []kinetl.ShardID{shard0, shard1}[i]
			after := kinetl.Oldest
			for n := 1; n <= rounds; n++ {
				p := part(shard, after, at(n), letters, n, people(n, 1, shard.Shard)...)
				got := eventually(s.T, func() (kinetl.CommitReport, error) {
					return d.Commit(context.Background(), s.table, []kinetl.Part{p})
				})
				if len(got.Fenced) > 0 {
					s.Errorf("%s fenced at %v", shard, got.Fenced)
				}
				after = at(n)
			}
		})
		s.wantWatermark(shard0, at(rounds))
		s.wantWatermark(shard1, at(rounds))
		if got := len(s.Read(s.T, s.table, letters).Rows); got != 2*rounds {
			s.Fatalf("%d rows stored, want %d", got, 2*rounds)
		}
	}},
}

func endsBeforeChildren(s *suite) {
	d := s.worker()
	s.prepare(d, letters, kinetl.Refuse)
	child := []kinetl.Claim{{Shard: shard2, Start: kinetl.Oldest, Parents: []kinetl.ParentClaim{{Shard: shard0}, {Shard: shard1}}}}
	refused := func(parent kinetl.ShardID, through kinetl.Position) {
		s.Helper()
		_, err := d.Claim(context.Background(), s.table, child)
		var unfinished *kinetl.UnfinishedParentError
		if !errors.As(err, &unfinished) || unfinished.Parent != parent || unfinished.Shard != shard2 || unfinished.Through != through {
			s.Fatalf("claim of the child: %v, want %s unfinished at %q", err, parent, through)
		}
		s.wantWatermark(shard2, "")
	}
	refused(shard0, "")
	s.start(d, shard0, shard1)
	refused(shard0, kinetl.Oldest)
	s.stored(d, part(shard0, kinetl.Oldest, kinetl.End, letters, 1, people(1, 1, "a")...))
	refused(shard1, kinetl.Oldest)
	s.stored(d, part(shard1, kinetl.Oldest, at(3), letters, 3, people(3, 1, "b")...), part(shard1, at(3), kinetl.End, nil, 0))
	got := s.claim(d, child...)
	if got.Through[shard2] != kinetl.Oldest {
		s.Fatalf("child claimed at %q, want its start", got.Through[shard2])
	}
}

func acceptedGap(s *suite) {
	d := s.worker()
	s.prepare(d, letters, kinetl.Refuse)
	s.start(d, shard0, shard1)
	gone := part(shard0, kinetl.Oldest, at(7), letters, 6, people(6, 2, "a")...)
	gone.Gap = &kinetl.Gap{To: at(6), Reason: "it's expired"}
	fenced := part(shard1, at(3), at(9), letters, 9, people(9, 1, "b")...)
	fenced.Gap = &kinetl.Gap{To: at(9), Reason: "not stored"}
	next := part(shard0, at(7), at(8), letters, 8, people(8, 1, "a")...)
	for range 2 { // the second time as a repeat, all of which is skipped
		s.commit(d, gone, next, fenced)
	}
	s.wantRows(letters, people(6, 3, "a")...)
	empty := part(shard1, kinetl.Oldest, kinetl.End, nil, 0)
	empty.Gap = &kinetl.Gap{To: kinetl.End, Reason: "all of it"}
	s.stored(d, empty)
	got := s.Read(s.T, s.table, letters).Gaps
	want := []Gap{{Shard: shard0, From: kinetl.Oldest, To: at(6), Reason: "it's expired"}, {Shard: shard1, From: kinetl.Oldest, To: kinetl.End, Reason: "all of it"}}
	for i := range got {
		if got[i].At.IsZero() {
			s.Errorf("gap %+v has no time", got[i])
		}
		got[i].At = time.Time{}
	}
	if !slices.Equal(got, want) {
		s.Fatalf("gaps %+v, want %+v", got, want)
	}
}

func moves(s *suite) {
	d := s.worker()
	s.prepare(d, letters, kinetl.Refuse)
	s.start(d, shard0, shard1)
	s.stored(d, part(shard0, kinetl.Oldest, at(5), nil, 0))
	ctx := context.Background()

	err := d.Move(ctx, s.table, []kinetl.Move{{Shard: shard1, From: kinetl.Oldest, To: at(9)}, {Shard: shard0, From: at(4), To: at(9)}}, "skip")
	var moved *kinetl.MovedError
	if !errors.As(err, &moved) || moved.Shard != shard0 || moved.Stored != at(5) || moved.Wanted != at(4) {
		s.Fatalf("move: %v, want *MovedError for %s", err, shard0)
	}
	err = d.Move(ctx, s.table, []kinetl.Move{{Shard: shard2, From: kinetl.Oldest, To: at(1)}}, "skip")
	if !errors.As(err, &moved) || moved.Shard != shard2 {
		s.Fatalf("move of a shard without a row: %v, want *MovedError", err)
	}
	s.wantWatermark(shard0, at(5))
	s.wantWatermark(shard1, kinetl.Oldest)
	s.wantWatermark(shard2, "")

	if err := d.Move(ctx, s.table, []kinetl.Move{{Shard: shard0, From: at(5), To: at(2)}, {Shard: shard1, From: kinetl.Oldest, To: at(9)}}, "replay it's 2"); err != nil {
		s.Fatalf("move: %v", err)
	}
	s.wantWatermark(shard0, at(2))
	s.wantWatermark(shard1, at(9))
	gaps := s.Read(s.T, s.table, letters).Gaps
	want := []Gap{{Shard: shard0, From: at(5), To: at(2)}, {Shard: shard1, From: kinetl.Oldest, To: at(9)}}
	if len(gaps) != len(want) {
		s.Fatalf("gaps %+v, want %+v", gaps, want)
	}
	for i, g := range gaps {
		if g.Shard != want[i].Shard || g.From != want[i].From || g.To != want[i].To || g.Reason != "replay it's 2" || g.At.IsZero() {
			s.Fatalf("gap %+v, want %+v", g, want[i])
		}
	}
	// A running loop notices by the fence.
	s.wantFenced(s.commit(d, part(shard0, at(5), at(6), letters, 6, people(6, 1, "a")...)), map[kinetl.ShardID]kinetl.Position{shard0: at(2)})
}

func otherApplication(s *suite) {
	mine, other := s.workerOf("mine", false), s.workerOf("other", false)
	s.prepare(mine, letters, kinetl.Refuse)
	s.start(mine, shard0)
	ctx := context.Background()
	refused := func(what string, err error) {
		s.Helper()
		var owner *kinetl.OtherApplicationError
		if !errors.As(err, &owner) || owner.Owner != "mine" || owner.Mine != "other" || owner.Shard != shard0 {
			s.Fatalf("%s: %v, want *OtherApplicationError", what, err)
		}
	}
	_, err := other.Claim(ctx, s.table, []kinetl.Claim{{Shard: shard1, Start: kinetl.Oldest}, {Shard: shard0, Start: kinetl.Oldest}})
	refused("claim", err)
	s.wantWatermark(shard1, "")
	_, err = other.Claim(ctx, s.table, []kinetl.Claim{{Shard: shard1, Start: kinetl.Oldest, Parents: []kinetl.ParentClaim{{Shard: shard0, Ended: true}}}})
	refused("claim of a child", err)
	refused("move", other.Move(ctx, s.table, []kinetl.Move{{Shard: shard0, From: kinetl.Oldest, To: at(1)}}, "x"))
	s.wantFenced(s.commit(other, part(shard0, kinetl.Oldest, at(1), nil, 0)), map[kinetl.ShardID]kinetl.Position{shard0: kinetl.Oldest})

	adopter := s.workerOf("other", true)
	if got := s.claim(adopter, kinetl.Claim{Shard: shard0, Start: at(8)}); got.Through[shard0] != kinetl.Oldest {
		s.Fatalf("adopted at %q, want the stored watermark", got.Through[shard0])
	}
	s.stored(other, part(shard0, kinetl.Oldest, at(1), nil, 0))
	s.wantFenced(s.commit(mine, part(shard0, at(1), at(2), nil, 0)), map[kinetl.ShardID]kinetl.Position{shard0: at(1)})
}

func twoWorkersCommit(s *suite) {
	a, b := s.worker(), s.worker()
	s.prepare(a, letters, kinetl.Refuse)
	var want []cells
	for round := range 10 {
		shard := shard0.Sibling(fmt.Sprintf("shardId-%012d", 100+round))
		s.start(a, shard)
		names := []string{"a", "b"}
		together(s, a, b, func(i int, d kinetl.Destination) {
			// Different lengths: whoever comes second overlaps or is behind.
			p := part(shard, kinetl.Oldest, at(10+i), letters, 1, people(1, 10+i, names[i])...)
			eventually(s.T, func() (kinetl.CommitReport, error) {
				return d.Commit(context.Background(), s.table, []kinetl.Part{p})
			})
		})
		switch through := s.Read(s.T, s.table, letters).Watermarks[shard]; through {
		case at(10):
			want = append(want, people(1, 10, "a")...)
		case at(11):
			want = append(want, people(1, 11, "b")...)
		default:
			s.Fatalf("watermark %q, want that of one of the workers", through)
		}
		s.wantRows(letters, want...)
	}
}

// together runs f for both workers at once and waits for them.
func together(s *suite, a, b kinetl.Destination, f func(i int, d kinetl.Destination)) {
	var wg sync.WaitGroup
	for i, d := range []kinetl.Destination{a, b} {
		wg.Go(func() { f(i, d) })
	}
	wg.Wait()
	if s.Failed() {
		s.FailNow()
	}
}
