package duckdb

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/kinetl/kinetl"
	"golang.org/x/sync/errgroup"
)

// Thousands of shards begin together: few at a time are in a transaction, each of
// which takes memory and a thread of the system.
func TestManyClaimsAtOnce(t *testing.T) {
	var d *Destination
	var most atomic.Int64
	d, err := New(Options{Path: filepath.Join(t.TempDir(), "many.duckdb"), MemoryLimit: 16 << 20, Observe: func(phase string) {
		if phase == "begin" {
			for n := int64(d.db.Stats().InUse); n > most.Load(); {
				most.Store(n)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "id", Class: kinetl.Int53}}, kinetl.Refuse); err != nil {
		t.Fatal(err)
	}
	const shards = 1000
	g, ctx := errgroup.WithContext(t.Context())
	for i := range shards {
		g.Go(func() error {
			shard := kinetl.ShardID{Stream: "arn:aws:kinesis:us-east-1:000000000000:stream/orders", Created: 1, Shard: fmt.Sprintf("shardId-%012d", i)}
			_, err := d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := d.db.QueryRow("SELECT count(*) FROM _kinetl_watermarks").Scan(&rows); err != nil || rows != shards {
		t.Errorf("%d watermarks, %v", rows, err)
	}
	if most.Load() > maxTransactions {
		t.Errorf("%d transactions at once, at most %d should be", most.Load(), maxTransactions)
	}
}
