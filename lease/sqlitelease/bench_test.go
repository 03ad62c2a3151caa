package sqlitelease

import (
	"path/filepath"
	"testing"

	"github.com/kinetl/kinetl/lease"
)

// BenchmarkRenew is what each held shard costs three times within the failover time.
func BenchmarkRenew(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "leases.db"), "me")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := lease.Lease{Key: "000000000000:orders:1:shardId-000000000000", Checkpoint: lease.TrimHorizon}
	if err := s.Create(b.Context(), l); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if l, err = s.Update(b.Context(), l, l.TakenBy("me")); err != nil {
			b.Fatal(err)
		}
	}
}
