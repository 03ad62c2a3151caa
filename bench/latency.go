package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/duckdb"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease"
)

// latency is the time from the start of a put to the commit of its row, which is when
// others see it: four shards that get a record every second and a bit, each at its
// own moments, for a minute. The pipeline is the program's, in this process, since
// DuckDB lets no other one look.
func latency(ctx context.Context, name string, batch kinetl.Batch) error {
	p, err := newProgram(kinesistest.Options{}, shards)
	if err != nil {
		return err
	}
	defer p.close()
	client, err := sdkClient(ctx, place{URL: p.server.URL(), Bundle: p.bundle()})
	if err != nil {
		return err
	}
	dest, err := duckdb.New(duckdb.Options{Path: filepath.Join(p.folder, "rows.duckdb"), Application: "bench"})
	if err != nil {
		return err
	}
	defer dest.Close()
	w := &watch{put: map[kinetl.ShardID][]stamped{}}
	pipeline := &kinetl.Pipeline{
		Consumer: kinetl.Consumer{
			Source: kinesis.NewSource(kinesis.Options{Client: client, Streams: []string{"rows"}, Idle: batch.Age / 2}),
			Leases: &lease.Memory{}, Config: kinetl.ConsumerConfig{Worker: "bench", Observe: w.observe},
		},
		NewDecoder: codec.NewJSON, Destination: dest, Config: kinetl.PipelineConfig{Batch: batch, RowGroup: duckdb.RowGroup},
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- pipeline.Run(running) }()
	err = w.feed(ctx, p.server)
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Sorted(slices.Values(w.took))
	at := func(part float64) float64 { return all[int(part*float64(len(all)-1))].Seconds() }
	fmt.Printf("put to visible row, %s: median %.2f s, 99th percentile %.2f s of %d records\n", name, at(0.5), at(0.99), len(all))
	return nil
}

// watch pairs puts with commits.
type watch struct {
	mu   sync.Mutex
	put  map[kinetl.ShardID][]stamped // not yet committed, in order
	took []time.Duration
}

type stamped struct {
	at       time.Time
	position kinetl.Position
}

// feed puts records for a minute and then waits until all are committed.
func (w *watch) feed(ctx context.Context, server *kinesistest.Server) error {
	ids, err := server.Shards("rows")
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	begin := time.Now()
	for i := 0; time.Since(begin) < time.Minute; i++ {
		<-time.After(time.Duration(rng.IntN(600)) * time.Millisecond)
		shard, at := ids[i%len(ids)], time.Now()
		// The lock is held over the put, lest the row be committed before it is known.
		w.mu.Lock()
		sequence, err := server.PutShard("rows", shard, "key", []byte(flat(rng, i)))
		key := kinetl.ShardID{Shard: shard}
		w.put[key] = append(w.put[key], stamped{at, kinetl.At(sequence, 0)})
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	for {
		w.mu.Lock()
		left := 0
		for _, waiting := range w.put {
			left += len(waiting)
		}
		w.mu.Unlock()
		switch {
		case left == 0:
			return nil
		case time.Since(begin) > 3*time.Minute:
			return fmt.Errorf("%d records are not committed", left)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (w *watch) observe(e kinetl.Event) {
	if e.Kind != kinetl.EventCommitted {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	key := kinetl.ShardID{Shard: e.Shard.Shard}
	for waiting := w.put[key]; len(waiting) > 0 && waiting[0].position <= e.Position; waiting = w.put[key] {
		w.took = append(w.took, now.Sub(waiting[0].at))
		w.put[key] = waiting[1:]
	}
}
