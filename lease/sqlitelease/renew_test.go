package sqlitelease

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// held makes n rows that worker "me" owns.
func held(t testing.TB, n int) (*Store, []lease.Lease) {
	s, err := Open(filepath.Join(t.TempDir(), "leases.db"), "me")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	rows := make([]lease.Lease, n)
	for i := range rows {
		rows[i] = lease.Lease{Key: fmt.Sprintf("orders:shardId-%012d", i), Owner: "me", Checkpoint: lease.TrimHorizon}
		if err := s.Create(t.Context(), rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	return s, rows
}

// TestRenewalsInOneTransaction: each renewal that shares a transaction stands for
// itself. Those whose row is another's by now are lost, and no other is.
func TestRenewalsInOneTransaction(t *testing.T) {
	s, rows := held(t, 20)
	stolen, err := s.Update(t.Context(), rows[7], rows[7].TakenBy("thief"))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 12, 1, 10, 0, 0, 123456789, time.UTC)
	var wg sync.WaitGroup
	for i, old := range rows {
		wg.Go(func() {
			next := old
			next.CaughtUp = at.Add(time.Duration(i))
			got, err := s.Update(t.Context(), old, next)
			switch {
			case i == 7 && !errors.Is(err, lease.ErrLost):
				t.Errorf("the row that was stolen: %v", err)
			case i != 7 && err != nil:
				t.Errorf("row %d: %v", i, err)
			case i != 7 && (got.Counter != 1 || !got.CaughtUp.Equal(next.CaughtUp)):
				t.Errorf("row %d: %+v", i, got)
			}
		})
	}
	wg.Wait()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range all {
		want := rows[i]
		want.Counter, want.CaughtUp = 1, at.Add(time.Duration(i))
		if i == 7 {
			want = stolen
		}
		if got.Counter != want.Counter || got.Owner != want.Owner || !got.CaughtUp.Equal(want.CaughtUp) {
			t.Errorf("row %d is %+v, want %+v", i, got, want)
		}
	}
}

// TestARenewalThatCannotBeWritten: whoever waits hears of it.
func TestARenewalThatCannotBeWritten(t *testing.T) {
	s, rows := held(t, 1)
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), rows[0], rows[0]); err == nil || errors.Is(err, lease.ErrLost) {
		t.Errorf("got %v, want an error that leaves open whether the lease is lost", err)
	}
}

// BenchmarkRenew is what each held shard costs three times within the failover time,
// where a thousand are held.
func BenchmarkRenew(b *testing.B) {
	s, rows := held(b, 15) // half of what comes within 100 ms
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += len(rows) {
		var wg sync.WaitGroup
		for i := range rows {
			wg.Go(func() {
				got, err := s.Update(b.Context(), rows[i], rows[i])
				if err != nil {
					b.Error(err)
					return
				}
				rows[i] = got
			})
		}
		wg.Wait()
	}
}
