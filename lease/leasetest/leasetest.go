// Package leasetest holds what every lease.Store is tested with.
package leasetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Suite says how to reach the store under test.
type Suite struct {
	// Open returns another worker's connection to the same leases; the first call of
	// a test begins with none.
	Open func(t *testing.T, worker string) lease.Store
	// Set writes an attribute of a row behind the store's back, and Attribute reads
	// one: its text, or what stands for its absence. Nil where a row has no others
	// than the store's own.
	Set       func(t *testing.T, key, attribute, text string)
	Attribute func(t *testing.T, key, attribute string) string
}

// Run tests a store.
func Run(t *testing.T, s Suite) {
	for _, c := range []struct {
		name string
		test func(*testing.T, context.Context, lease.Store, lease.Store)
	}{
		{"a row is read back as it was written", readBack},
		{"a row is created once", createOnce},
		{"a write needs the owner and the counter that were seen (R21)", conditional},
		{"of many takers one wins", oneWins},
		{"a deleted row is gone, and only with the counter seen", deletes},
		{"every attribute can be set, changed and cleared", everyAttribute},
		{"a checkpoint removes a pending one, a renewal keeps it", pending},
		{"a signal changes nothing else, and no write loses it (R20)", signals},
		{"a table of many rows is read whole and in order", manyRows},
		{"a call ends with its context", deadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, t.Context(), s.Open(t, "a"), s.Open(t, "b"))
		})
	}
	if s.Set != nil {
		t.Run("attributes that lease.Lease does not know keep their values", func(t *testing.T) { s.unknown(t) })
	}
}

func full() lease.Lease {
	at := time.Date(2026, 12, 1, 10, 0, 0, 123456789, time.UTC)
	return lease.Lease{
		Key: "000000000000:orders:1700000000:shardId-000000000002", Owner: "a", Counter: 7,
		Checkpoint: "49590338271490256608559692538361571095921575989136588898", Sub: 3, OwnerSwitches: 2,
		Parents: []string{"shardId-000000000000", "shardId-000000000001"}, Children: []string{"shardId-000000000003"},
		StartingHashKey: "0", EndingHashKey: "340282366920938463463374607431768211455", Throughput: 1234.56,
		PendingCheckpoint: "49590338271490256608559692538361571095921575989136588899", PendingSub: 1, CheckpointOwner: "c",
		Stream: "arn:aws:kinesis:eu-west-1:000000000000:stream/orders@1700000000", Signal: "1 a 1 1",
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

func everyAttribute(t *testing.T, ctx context.Context, a, b lease.Store) {
	bare := lease.Lease{Key: full().Key, Checkpoint: lease.TrimHorizon}
	must(t, a.Create(ctx, bare))
	other := full()
	other.Owner, other.Sub, other.OwnerSwitches, other.Checkpoint = "b", 1<<64-1, 0, "0"
	other.Parents, other.Children, other.StartingHashKey, other.EndingHashKey = []string{"x"}, []string{"y", "z"}, "1", "2"
	other.CheckpointOwner, other.Stream, other.Sink, other.Incident, other.Accepted = "d", "s@1", lease.Sink{ID: "y"}, "i", "x"
	other.Throughput = 0.01
	other.Created, other.Start, other.CaughtUp = other.Created.Add(1), other.Start.Add(1), other.CaughtUp.Add(1)
	row := bare
	for i, next := range []lease.Lease{full(), other, bare} {
		got, err := b.Update(ctx, row, next)
		must(t, err)
		want := next
		want.Counter, want.Signal = int64(i+1), ""
		want.PendingCheckpoint, want.PendingSub = "", 0
		stored, _, err := a.Get(ctx, row.Key)
		must(t, err)
		stored.OwnerGone = false
		if !reflect.DeepEqual(stored, want) || !reflect.DeepEqual(got, want) {
			t.Errorf("write %d: stored %+v, returned %+v, want %+v", i, stored, got, want)
		}
		row = got
	}
}

func pending(t *testing.T, ctx context.Context, a, b lease.Store) {
	row := full()
	must(t, a.Create(ctx, row))
	renewed, err := a.Update(ctx, row, row)
	must(t, err)
	stored, _, err := b.Get(ctx, row.Key)
	must(t, err)
	if stored.PendingCheckpoint != row.PendingCheckpoint || stored.PendingSub != row.PendingSub || renewed.PendingCheckpoint != row.PendingCheckpoint {
		t.Errorf("a renewal left %+v", stored)
	}
	next := renewed
	next.Sub++
	moved, err := a.Update(ctx, renewed, next)
	must(t, err)
	if stored, _, err = b.Get(ctx, row.Key); err != nil || stored.PendingCheckpoint != "" || stored.PendingSub != 0 || moved.PendingCheckpoint != "" {
		t.Errorf("a checkpoint left %+v, error %v", stored, err)
	}
}

func signals(t *testing.T, ctx context.Context, a, b lease.Store) {
	lost(t, a.Signal(ctx, "nothing", "1"))
	if all, err := a.List(ctx); err != nil || len(all) > 0 {
		t.Errorf("a signal made a row: %+v, error %v", all, err)
	}
	row := full()
	row.Signal = ""
	must(t, a.Create(ctx, row))
	seen, err := a.List(ctx)
	must(t, err)
	must(t, b.Signal(ctx, row.Key, "1 b 1 1"))
	next := seen[0]
	next.Sub, next.Signal = 9, "mine"
	got, err := a.Update(ctx, seen[0], next)
	must(t, err)
	stored, _, err := b.Get(ctx, row.Key)
	must(t, err)
	if stored.Signal != "1 b 1 1" || stored.Counter != seen[0].Counter+1 || stored.Sub != 9 || got.Counter != stored.Counter {
		t.Errorf("a signal between a read and a write: stored %+v", stored)
	}
	must(t, b.Signal(ctx, row.Key, ""))
	if stored, _, err = a.Get(ctx, row.Key); err != nil || stored.Signal != "" || stored.Counter != got.Counter {
		t.Errorf("a cleared signal: %+v, error %v", stored, err)
	}
}

func manyRows(t *testing.T, ctx context.Context, a, b lease.Store) {
	const rows = 1600 // more than one page of a megabyte
	var group sync.WaitGroup
	next := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range next {
				l := lease.Lease{Key: fmt.Sprintf("s:%04d", i), Checkpoint: lease.TrimHorizon, Incident: strings.Repeat("x", 1000)}
				if err := a.Create(ctx, l); err != nil {
					t.Errorf("row %d: %v", i, err)
				}
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	group.Wait()
	all, err := b.List(ctx)
	must(t, err)
	if len(all) != rows {
		t.Fatalf("%d rows of %d", len(all), rows)
	}
	for i, l := range all {
		if l.Key != fmt.Sprintf("s:%04d", i) {
			t.Fatalf("row %d is %s", i, l.Key)
		}
	}
}

func deadline(t *testing.T, ctx context.Context, a, _ lease.Store) {
	row := full()
	must(t, a.Create(ctx, row))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, errList := a.List(ended)
	_, _, errGet := a.Get(ended, row.Key)
	_, errUpdate := a.Update(ended, row, row)
	for call, err := range map[string]error{
		"list": errList, "get": errGet, "update": errUpdate,
		"create": a.Create(ended, lease.Lease{Key: "s:1", Checkpoint: lease.TrimHorizon}),
		"signal": a.Signal(ended, row.Key, "1"), "delete": a.Delete(ended, row),
	} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, lease.ErrLost) {
			t.Errorf("%s: got %v", call, err)
		}
	}
	if all, err := a.List(ctx); err != nil || len(all) != 1 || all[0].Counter != row.Counter || all[0].Signal != row.Signal {
		t.Errorf("left: %+v, error %v", all, err)
	}
}

// unknown: another program's attributes survive everything but the row's end.
func (s Suite) unknown(t *testing.T) {
	ctx, a := t.Context(), s.Open(t, "a")
	row := full()
	must(t, a.Create(ctx, row))
	s.Set(t, row.Key, "somebodyElses", "precious")
	next := row
	next.Owner, next.Checkpoint, next.Sub, next.Incident = "b", "7", 0, ""
	got, err := a.Update(ctx, row, next)
	must(t, err)
	must(t, a.Signal(ctx, row.Key, "1"))
	next = got
	next.Checkpoint, next.Owner = lease.ShardEnd, ""
	_, err = a.Update(ctx, got, next)
	must(t, err)
	if text := s.Attribute(t, row.Key, "somebodyElses"); text != "precious" {
		t.Errorf("it is %q", text)
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
