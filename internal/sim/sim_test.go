package sim

import (
	"flag"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Int("seeds", 60, "how many random runs TestSim makes")
	first = flag.Uint64("seed", 0, "the first seed; 0 picks one at random and prints it")
)

// simulate runs one seed in a bubble of virtual time.
func simulate(t *testing.T, seed uint64, mutant mutation) (wrong []string) {
	synctest.Test(t, func(*testing.T) { wrong = run(seed, mutant) })
	return wrong
}

// TestSim: whatever dies, stalls, fails or changes, every record is a row or a dead
// letter exactly once, in order per key, and children come after parents.
func TestSim(t *testing.T) {
	start := *first
	if start == 0 {
		start = uint64(rand.Uint32())
	}
	t.Logf("seeds %d to %d: go test ./internal/sim -run 'TestSim$' -seed=%d -seeds=%d", start, start+uint64(*seeds)-1, start, *seeds)
	var next, failed atomic.Uint64
	began := time.Now()
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for {
				seed := start + next.Add(1) - 1
				if seed >= start+uint64(*seeds) || failed.Load() > 3 {
					return
				}
				if wrong := simulate(t, seed, none); len(wrong) > 0 {
					failed.Add(1)
					t.Errorf("seed %d: %d faults. Repeat: go test ./internal/sim -run 'TestSim$' -count=20 -seeds=1 -seed=%d\n\t%s",
						seed, len(wrong), seed, strings.Join(wrong[:min(10, len(wrong))], "\n\t"))
				}
				if n := seed - start + 1; n%1000 == 0 {
					t.Logf("%d seeds in %s", n, time.Since(began).Round(time.Second))
				}
			}
		})
	}
}

// TestMutations: with a rule left out, the same runs must be found wrong. A check
// that never fails proves nothing.
func TestMutations(t *testing.T) {
	for _, m := range []mutation{noFence, resumeFromLease, endBeforeDurable, commitCreatesRow, noSchemaCheck} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 400; seed++ {
				if wrong := simulate(t, seed, m); len(wrong) > 0 {
					t.Logf("found by seed %d: %s", seed, wrong[0])
					return
				}
			}
			t.Errorf("400 seeds did not notice: %s", m)
		})
	}
}
