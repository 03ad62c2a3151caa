package kinetl_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/lease"
)

// KCL complaint 9: a stop at any moment of a start, in whichever call, ends the run
// within seconds and without an error. No goroutine, no lease and no record stays
// behind.
func TestAStopAtAnyMoment(t *testing.T) {
	for moment := range 60 {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3)
				for i := range 3 {
					r.put(i, i)
				}
				left, _ := r.split(0)
				r.put(left, 3)
				p := r.worker("a")
				p.Consumer.Source = &slowSource{r.script}
				p.Consumer.Leases = &flaky{Store: r.leases, hook: func(string, lease.Lease) fate { return fate{hang: 60 * time.Millisecond} }}
				p.Consumer.Config.Watch = func(ctx context.Context, _ time.Time, _ []lease.Lease) (lease.Verdict, error) {
					return lease.Verdict{Judgement: lease.Clear}, wait(ctx, 80*time.Millisecond)
				}
				p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, _ string) error { return wait(ctx, 70*time.Millisecond) }})
				w := r.start(p)
				time.Sleep(time.Duration(moment) * 41 * time.Millisecond)
				asked := time.Now()
				w.drain(t)
				if took := time.Since(asked); took > 5*time.Second {
					t.Errorf("the stop took %s", took)
				}
				for n := range r.shards {
					if l := r.row(n); l.Owner != "" {
						t.Errorf("lease %s is left to %q", l.Key, l.Owner)
					}
				}
				if err := r.once(r.worker("b")); err != nil {
					t.Fatal(err)
				}
				r.wantOrders(span(0, 3)...)
			})
		})
	}
}

// slowSource takes its time to list shards.
type slowSource struct{ *script }

func (s *slowSource) Shards(ctx context.Context, openAt time.Time) (kinetl.Listing, error) {
	if err := wait(ctx, 150*time.Millisecond); err != nil {
		return kinetl.Listing{}, err
	}
	return s.script.Shards(ctx, openAt)
}
