// Package leasetest holds what every lease.Store is tested with.
package leasetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Run tests a store. open returns another worker's connection to the same leases;
// the first call of a test begins with none.
func Run(t *testing.T, open func(t *testing.T, worker string) lease.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, context.Context, lease.Store, lease.Store)
	}{
		{"a row is read back as it was written", readBack},
		{"a row is created once", createOnce},
		{"a write needs the owner and the counter that were seen (R21)", conditional},
		{"of many takers one wins", oneWins},
		{"a deleted row is gone, and only with the counter seen", deletes},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, t.Context(), open(t, "a"), open(t, "b"))
		})
	}
}

func full() lease.Lease {
	at := time.Date(2026, 12, 1, 10, 0, 0, 123456789, time.UTC)
	return lease.Lease{
		Key: "000000000000:orders:1700000000:shardId-000000000002", Owner: "a", Counter: 7,
		Checkpoint: "49590338271490256608559692538361571095921575989136588898", Sub: 3, OwnerSwitches: 2,
		Parents: []string{"shardId-000000000000", "shardId-000000000001"},
		Created: at, Start: at.Add(time.Second), CaughtUp: at.Add(time.Minute),
		Sink:     lease.Sink{ID: "x", Table: "orders", Position: "END"},
		Incident: `[{"id":"1"}]`,
		Accepted: "since 2026-12-01T10:00:00.000Z",
	}
}

func readBack(t *testing.T, ctx context.Context, a, b lease.Store) {
	for _, want := range []lease.Lease{full(), {Key: "s:1", Checkpoint: lease.TrimHorizon}} {
		must(t, a.Create(ctx, want))
		got, found, err := b.Get(ctx, want.Key)
		must(t, err)
		got.OwnerGone = false
		if !found || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	all, err := b.List(ctx)
	must(t, err)
	if len(all) != 2 || all[0].Key != full().Key || all[1].Key != "s:1" {
		t.Errorf("list: got %+v", all)
	}
	if _, found, err := a.Get(ctx, "nothing"); found || err != nil {
		t.Errorf("a row that is not there: found %v, error %v", found, err)
	}
}

func createOnce(t *testing.T, ctx context.Context, a, b lease.Store) {
	must(t, a.Create(ctx, full()))
	other := full()
	other.Owner, other.Checkpoint = "b", lease.TrimHorizon
	lost(t, b.Create(ctx, other))
	got, _, err := a.Get(ctx, full().Key)
	must(t, err)
	if got.Owner != "a" || got.Checkpoint != full().Checkpoint {
		t.Errorf("the second create changed the row: %+v", got)
	}
}

func conditional(t *testing.T, ctx context.Context, a, b lease.Store) {
	seen := full()
	must(t, a.Create(ctx, seen))
	taken := seen
	taken.Owner = "b"
	got, err := b.Update(ctx, seen, taken)
	must(t, err)
	if got.Owner != "b" || got.Counter != seen.Counter+1 {
		t.Errorf("update returned %+v", got)
	}
	// The old owner is late: it still believes in the row that it saw.
	late := seen
	late.Checkpoint = lease.ShardEnd
	_, err = a.Update(ctx, seen, late)
	lost(t, err)
	stolenBack := got
	stolenBack.Owner = "a" // the counter is right, the owner is not
	_, err = a.Update(ctx, stolenBack, late)
	lost(t, err)
	now, _, err := a.Get(ctx, seen.Key)
	must(t, err)
	now.OwnerGone = false
	if !reflect.DeepEqual(now, got) {
		t.Errorf("row is %+v, want %+v", now, got)
	}
	_, err = a.Update(ctx, lease.Lease{Key: "nothing"}, late)
	lost(t, err)
}

func oneWins(t *testing.T, ctx context.Context, a, b lease.Store) {
	free := full()
	free.Owner = ""
	must(t, a.Create(ctx, free))
	var wg sync.WaitGroup
	var mu sync.Mutex
	winners := 0
	for i := range 20 {
		s := []lease.Store{a, b}[i%2]
		wg.Go(func() {
			next := free
			next.Owner = fmt.Sprint("worker-", i)
			_, err := s.Update(ctx, free, next)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				winners++
			case !errors.Is(err, lease.ErrLost):
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if winners != 1 {
		t.Errorf("%d workers won", winners)
	}
}

func deletes(t *testing.T, ctx context.Context, a, b lease.Store) {
	seen := full()
	must(t, a.Create(ctx, seen))
	renewed, err := a.Update(ctx, seen, seen)
	must(t, err)
	lost(t, b.Delete(ctx, seen))
	must(t, b.Delete(ctx, renewed))
	lost(t, b.Delete(ctx, renewed))
	if all, err := a.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("left: %v, error %v", all, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lost(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, lease.ErrLost) {
		t.Errorf("got %v, want %v", err, lease.ErrLost)
	}
}
