package kinetl_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
)

// merge closes two shards and opens their child.
func (s *script) merge(a, b int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parents []string
	for _, n := range []int{a, b} {
		sh := s.shards[n]
		s.seq++
		sh.info.Closed, sh.info.LastSeq, sh.closed = true, strconv.Itoa(s.seq), time.Now()
		parents = append(parents, sh.info.ID.Shard)
	}
	return s.add(s.shards[a].info.ID.StreamName(), parents...)
}

// openShards are those that take records.
func (s *script) openShards() (out []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, sh := range s.shards {
		if !sh.info.Closed {
			out = append(out, n)
		}
	}
	return out
}

// scale changes the shard count as UpdateShardCount does: many shards at once.
func (f *troop) scale(up bool) {
	open := f.openShards()
	f.rng.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for len(open) >= 4 && !up {
		f.merge(open[0], open[1])
		open = open[2:]
	}
	for _, n := range open[:len(open)/2] {
		f.split(n)
	}
}

// flows puts a record into every open shard, and fails unless these and all before
// them are stored within the limit: no shard has been forgotten.
func (f *troop) flows(limit time.Duration) (took time.Duration) {
	f.t.Helper()
	for _, n := range f.openShards() {
		f.put(n, f.records)
		f.records++
	}
	began, want := time.Now(), f.records
	for {
		stored := map[int]bool{}
		for _, id := range f.ids("orders") {
			stored[id] = true
		}
		missing := 0
		for id := range want {
			if !stored[id] {
				missing++
			}
		}
		if missing == 0 {
			return time.Since(began)
		}
		if time.Since(began) > limit {
			f.t.Fatalf("after %s %d of %d records are not stored; leases: %v", limit, missing, want, f.owners())
		}
		f.live(500 * time.Millisecond)
	}
}

// wantParentsFirst checks that a parent's records are stored before its children's.
func (r *rig) wantParentsFirst() {
	r.t.Helper()
	first, last := map[kinetl.ShardID]int{}, map[kinetl.ShardID]int{}
	for i, row := range r.memory.Read("orders").Rows {
		if _, seen := first[row.Shard]; !seen {
			first[row.Shard] = i
		}
		last[row.Shard] = i
	}
	for _, sh := range r.shards {
		for _, p := range sh.info.Parents {
			begin, read := first[sh.info.ID]
			if parent := sh.info.ID.Sibling(p); read && begin < last[parent] {
				r.t.Errorf("R8: %s has rows before its parent's last", sh.info.ID.Shard)
			}
		}
	}
}

// K11, K18: the shard count goes up and down under load, again and again, while workers
// join, leave and die. Every shard that is open goes on being read, without anybody's
// help; each record is stored once, and parents' before their children's.
func TestReshardingUnderLoad(t *testing.T) {
	longest := time.Duration(0)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := rally(t, seed, 3, 8)
				for round := range 6 {
					f.scale(f.rng.IntN(2) == 0)
					f.live(time.Duration(f.rng.IntN(3000)) * time.Millisecond)
					if round%2 == 1 {
						defer f.disturb(round)()
					}
					f.scale(f.rng.IntN(2) == 0) // before the first is digested
					longest = max(longest, f.flows(45*time.Second))
				}
				f.dismiss()
				f.wantInOrder()
				f.wantParentsFirst()
			})
		})
	}
	t.Logf("at most %s until every record of a storm is stored", longest)
}

// disturb kills a worker or has it stop, and another one join. It returns what waits for
// the end of the first.
func (f *troop) disturb(round int) (wait func()) {
	names := slices.Sorted(maps.Keys(f.members))
	name := names[f.rng.IntN(len(names))]
	m := f.members[name]
	delete(f.members, name)
	m.dead.Store(f.rng.IntN(2) == 0)
	m.stop()
	f.join(fmt.Sprint("new", round))
	return func() { <-m.done }
}
