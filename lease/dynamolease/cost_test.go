package dynamolease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

// quiet is a source with shards in which nothing happens.
type quiet struct{ shards int }

func (q quiet) Shards(context.Context, time.Time) (kinetl.Listing, error) {
	out := kinetl.Listing{At: time.Now()}
	for i := range q.shards {
		id := kinetl.ShardID{Stream: "arn:aws:kinesis:us-east-1:000000000000:stream/quiet", Created: 1700000000, Shard: fmt.Sprintf("shardId-%012d", i)}
		out.Shards = append(out.Shards, kinetl.ShardInfo{ID: id})
	}
	return out, nil
}

func (quiet) Read(context.Context, kinetl.ShardID, kinetl.Resume) (kinetl.Reader, error) {
	return nil, context.Canceled // its shards are never opened
}

// The requests that docs/dynamodb.md counts, measured on the engine at work: in each
// failover time 3 renewals a lease, 2.5 scans and up to 10 looks at the signal a worker.
func TestCost(t *testing.T) {
	const (
		leases   = 8
		failover = 1200 * time.Millisecond
		periods  = 4
	)
	s, w := wired(t, dynamotest.Dynalite(t), Options{Failover: failover})
	ctx, stop := context.WithCancel(t.Context())
	held := make(chan struct{}, leases)
	done := make(chan error, 1)
	c := kinetl.Consumer{Source: quiet{leases}, Leases: s, Config: kinetl.ConsumerConfig{Worker: "w", Failover: failover}}
	go func() {
		done <- c.Run(ctx, func(ctx context.Context, _ *kinetl.Shard) error {
			held <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	for range leases {
		<-held
	}
	w.reset(nil)
	began := time.Now()
	time.Sleep(periods * failover)
	counts, n := w.count(), float64(time.Since(began))/float64(failover)
	stop()
	must(t, <-done)
	t.Logf("%.1f failover times: %v", n, counts)
	for action, want := range map[string][2]float64{
		"UpdateItem": {0.7 * 3 * leases * n, 3*leases*n + leases},
		"Scan":       {0.5 * 2.5 * n, 2.5*n + 2},
		"GetItem":    {0, 10*n + 1},
	} {
		if have := float64(counts[action]); have < want[0] || have > want[1] {
			t.Errorf("%s: %.0f, want %.0f to %.0f", action, have, want[0], want[1])
		}
		delete(counts, action)
	}
	if len(counts) > 0 {
		t.Errorf("others: %v", counts)
	}
}
