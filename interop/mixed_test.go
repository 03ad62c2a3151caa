//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

// A KCL 2 worker and one of kinetl share eight shards, of which each sees one of its own
// split; then either is killed, and the other takes everything. Such a fleet is at least once.
func TestMixedFleet(t *testing.T) {
	t.Parallel()
	for _, killed := range []string{"KCL", "kinetl"} {
		t.Run(killed+" killed", func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			w := newWorld(t, 8, dynamotest.Dynalite(t))
			ctx, stop := context.WithCancel(t.Context())
			var background sync.WaitGroup
			background.Go(func() {
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					w.produce(3)
					select {
					case <-tick.C:
					case <-ctx.Done():
					}
				}
			})
			early := 0
			background.Go(func() { early = w.watchChildren(ctx) })
			defer background.Wait()
			defer stop()

			k := w.startKCL(kcl2, "java", 0)
			w.until("KCL holds all leases", startKCL, func() bool { return w.owners("java")["java"] == 8 })
			g := w.startKinetl()
			joined := time.Now()
			w.until("each holds a half", startKCL, func() bool {
				have := w.owners("java")
				return have["java"] == 4 && have["kinetl"] == 4
			})
			converged := time.Since(joined)

			// One shard that either of them holds.
			parents := []string{w.heldBy("java"), w.heldBy("kinetl")}
			one, two := w.split(parents[0]), w.split(parents[1])
			children := []string{one[0], one[1], two[0], two[1]}
			w.until("the splits are behind them", startKCL, func() bool {
				have := map[string]lease.Lease{}
				for _, l := range w.leases() {
					have[l.Key] = l
				}
				return have[parents[0]].Ended() && have[parents[1]].Ended() &&
					!slices.ContainsFunc(children, func(c string) bool { return position(have[c]) == "" })
			})
			other := "java"
			if killed == "KCL" {
				k.end(syscall.SIGKILL)
				other = "kinetl"
			} else {
				g.end(syscall.SIGKILL)
			}
			died := time.Now()
			w.until("the other holds all leases", time.Minute, func() bool { return w.owners("java")[other] == 10 })
			taken := time.Since(died)
			stop()
			background.Wait()
			w.until("everything is checkpointed", time.Minute, w.checkpointed)
			k.end(syscall.SIGTERM)
			if code := g.end(syscall.SIGTERM); killed == "KCL" && code != 0 {
				t.Errorf("kinetl ended with exit code %d", code)
			}
			if early > 0 {
				t.Errorf("%d times a child was read before its parent's end", early)
			}
			res := w.count(w.rows(), k)
			res.clean(t, res.Records/2)
			res.Scenario, res.Versions, res.Took = "4. mixed fleet, "+killed+" killed", kclVersion(t, kcl2), time.Since(begin)
			res.Note = fmt.Sprintf("4 and 4 leases after %v; the other had all %v after the kill", converged.Round(100*time.Millisecond), taken.Round(100*time.Millisecond))
			report(t, res)
		})
	}
}

// heldBy is a shard that KCL's worker holds, or kinetl.
func (w *world) heldBy(worker string) string {
	w.t.Helper()
	for _, l := range w.leases() {
		if l.Owner != "" && !l.Ended() && l.Foreign == (worker != "kinetl") {
			return l.Key
		}
	}
	w.t.Fatalf("%s holds no lease", worker)
	return ""
}

// watchChildren looks at the leases until ctx ends, and counts how often one had moved
// by the one look while its parent had not ended at the next.
func (w *world) watchChildren(ctx context.Context) (early int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	moved := map[string]bool{} // parents of leases that had
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return early
		}
		leases := w.leases()
		next := map[string]bool{}
		for _, l := range leases {
			if moved[l.Key] && !l.Ended() {
				early++
			}
			for _, p := range l.Parents {
				if l.Checkpoint != lease.TrimHorizon {
					next[p] = true
				}
			}
		}
		moved = next
	}
}
