package kinetl_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kinetl/kinetl"
	"pgregory.net/rapid"
)

func seqAt(n int) kinetl.Position { return kinetl.At(fmt.Sprint(n), 0) }

func partOf(shard int, after, through kinetl.Position) kinetl.Part {
	return kinetl.Part{Shard: shardOf("orders", shard), After: after, Through: through}
}

// R7: what extends the watermark is applied and chains, what is stored is skipped,
// and everything else is fenced with all that follows it.
func TestAdmit(t *testing.T) {
	a, b, c := seqAt(1), seqAt(2), seqAt(3)
	for name, x := range map[string]struct {
		stored kinetl.Position // empty: no row
		parts  []kinetl.Part
		apply  []int
		moved  kinetl.Position
		fenced bool
	}{
		"the first part":    {kinetl.Oldest, []kinetl.Part{partOf(0, kinetl.Oldest, a)}, []int{0}, a, false},
		"a chain":           {a, []kinetl.Part{partOf(0, a, b), partOf(0, b, c), partOf(0, c, kinetl.End)}, []int{0, 1, 2}, kinetl.End, false},
		"a repeated commit": {c, []kinetl.Part{partOf(0, a, b), partOf(0, b, c)}, nil, "", false},
		"half repeated":     {b, []kinetl.Part{partOf(0, a, b), partOf(0, b, c)}, []int{1}, c, false},
		"after the end":     {kinetl.End, []kinetl.Part{partOf(0, b, c)}, nil, "", false},
		"an overlap":        {b, []kinetl.Part{partOf(0, a, c)}, nil, "", true},
		"a gap":             {a, []kinetl.Part{partOf(0, b, c)}, nil, "", true},
		"no row":            {"", []kinetl.Part{partOf(0, kinetl.Oldest, a)}, nil, "", true},
		"behind a fence":    {a, []kinetl.Part{partOf(0, b, c), partOf(0, a, b)}, nil, "", true},
		"a gap in a chain":  {kinetl.Oldest, []kinetl.Part{partOf(0, kinetl.Oldest, a), partOf(0, b, c)}, []int{0}, a, true},
	} {
		stored := map[kinetl.ShardID]kinetl.Position{}
		if x.stored != "" {
			stored[shardOf("orders", 0)] = x.stored
		}
		// Another shard is decided by itself.
		other := partOf(1, a, b)
		stored[other.Shard] = a
		apply, moved, fenced := kinetl.Admit(stored, append(slices.Clone(x.parts), other))
		var want []kinetl.Position
		for _, i := range x.apply {
			want = append(want, x.parts[i].Through)
		}
		var got []kinetl.Position
		for _, p := range apply[:len(apply)-1] {
			got = append(got, p.Through)
		}
		_, out := fenced[shardOf("orders", 0)]
		if !slices.Equal(got, want) || moved[shardOf("orders", 0)] != x.moved || out != x.fenced {
			t.Errorf("%s: applied %v, moved to %s, fenced %v", name, got, moved[shardOf("orders", 0)], out)
		}
		if apply[len(apply)-1].Shard != other.Shard || moved[other.Shard] != b || len(fenced) > 1 {
			t.Errorf("%s: the other shard is applied %v, fenced %v", name, moved[other.Shard], fenced)
		}
	}
}

// R6, R7: two workers read one shard from its watermark, cut it as they like, and
// commit in any order, with repetitions. Each record is stored once, in order.
func TestAdmitStoresEachRecordOnce(t *testing.T) {
	const records = 12
	rapid.Check(t, func(t *rapid.T) {
		shard := shardOf("orders", 0)
		stored := map[kinetl.ShardID]kinetl.Position{shard: seqAt(0)}
		var table []int
		type worker struct {
			next  int // the record that it reads next
			parts []kinetl.Part
		}
		workers := [2]worker{{next: 1}, {next: 1}}
		reopen := func(w *worker) {
			seq, _, _ := stored[shard].Sequence()
			_, _ = fmt.Sscan(seq, &w.next)
			w.next++
			w.parts = nil
		}
		commit := func(w *worker) {
			n := rapid.IntRange(0, len(w.parts)).Draw(t, "parts")
			apply, moved, fenced := kinetl.Admit(stored, w.parts[:n])
			for _, p := range apply {
				var from, to int
				a, _, _ := p.After.Sequence()
				b, _, _ := p.Through.Sequence()
				_, _ = fmt.Sscan(a+" "+b, &from, &to)
				table = append(table, span(from+1, to)...)
			}
			if p, ok := moved[shard]; ok {
				stored[shard] = p
			}
			switch answered := rapid.Bool().Draw(t, "answered"); {
			case answered && len(fenced) > 0:
				reopen(w)
			case answered:
				w.parts = w.parts[n:]
			}
		}
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			w := &workers[rapid.IntRange(0, 1).Draw(t, "worker")]
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				reopen(w)
			case 1, 2, 3, 4:
				if n := rapid.IntRange(1, 4).Draw(t, "rows"); w.next+n-1 <= records {
					w.parts = append(w.parts, partOf(0, seqAt(w.next-1), seqAt(w.next+n-1)))
					w.next += n
				}
			default:
				commit(w)
			}
		}
		if want := span(1, len(table)); !slices.Equal(table, want) {
			t.Fatalf("the table holds %v", table)
		}
		if stored[shard] != seqAt(len(table)) {
			t.Fatalf("the watermark is %s with %d records stored", stored[shard], len(table))
		}
	})
}
