package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"golang.org/x/sync/errgroup"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/duckdb"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/lease"
)

// mu guards what the goroutines of a side share.
var mu sync.Mutex

func kinetlSource(ctx context.Context, p place, stream, wire string) (*kinesis.Source, error) {
	cfg, err := awsconf.Load(ctx, awsconf.Settings{Endpoint: p.URL})
	if err != nil {
		return nil, err
	}
	return kinesis.NewSource(kinesis.Options{
		Client: awskinesis.NewFromConfig(cfg), Streams: []string{stream}, Wire: kinesis.Wire(wire), Unpaced: true,
	}), nil
}

// readAll reads every shard to its tip, each in a goroutine.
func readAll(ctx context.Context, source *kinesis.Source, page func(shard kinetl.ShardID, f kinetl.Fetch) error) (tally, error) {
	listing, err := source.Shards(ctx, time.Time{})
	if err != nil {
		return tally{}, err
	}
	var records, bytes atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for _, shard := range listing.Shards {
		g.Go(func() error {
			r, err := source.Read(ctx, shard.ID, kinetl.Resume{After: kinetl.Oldest})
			if err != nil {
				return err
			}
			defer r.Close()
			for {
				if _, err := r.Ready(ctx); err != nil {
					return err
				}
				f, err := r.Next(ctx)
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				for i := range f.Records {
					bytes.Add(int64(len(f.Records[i].Data)))
				}
				records.Add(int64(len(f.Records)))
				err = page(shard.ID, f)
				f.Release()
				if err != nil {
					return err
				}
				if !f.CaughtUp.IsZero() {
					return nil
				}
			}
		})
	}
	err = g.Wait()
	return tally{records.Load(), bytes.Load()}, err
}

func kinetlReader(wire string) func(context.Context, place, string) (tally, error) {
	return func(ctx context.Context, p place, stream string) (tally, error) {
		source, err := kinetlSource(ctx, p, stream, wire)
		if err != nil {
			return tally{}, err
		}
		return readAll(ctx, source, func(kinetl.ShardID, kinetl.Fetch) error { return nil })
	}
}

// batchRows is how many rows a batch has, on both sides.
const batchRows = 10_000

// kinetlArrow decodes to batches with all metadata columns.
func kinetlArrow(ctx context.Context, p place, stream string) (tally, error) {
	source, err := kinetlSource(ctx, p, stream, "auto")
	if err != nil {
		return tally{}, err
	}
	return decodeAll(ctx, source, func(kinetl.ShardID, arrow.RecordBatch, kinetl.Schema, []kinetl.RowID) error { return nil })
}

func decodeAll(ctx context.Context, source *kinesis.Source, take func(kinetl.ShardID, arrow.RecordBatch, kinetl.Schema, []kinetl.RowID) error) (tally, error) {
	type state struct {
		builder *kinetl.Builder
		decoder kinetl.Decoder
	}
	listing, err := source.Shards(ctx, time.Time{})
	if err != nil {
		return tally{}, err
	}
	states := map[kinetl.ShardID]state{}
	for _, s := range listing.Shards {
		states[s.ID] = state{kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataColumns), codec.NewJSON()}
	}
	seal := func(shard kinetl.ShardID) error {
		rows, schema, ids := states[shard].builder.Seal()
		if rows == nil {
			return nil
		}
		defer rows.Release()
		return take(shard, rows, schema, ids)
	}
	t, err := readAll(ctx, source, func(shard kinetl.ShardID, f kinetl.Fetch) error {
		s := states[shard]
		for i := range f.Records {
			if err := s.decoder.Decode(f.Records[i].Data, s.builder); err != nil {
				return err
			}
			if err := s.builder.EndRow(&f.Records[i], shard); err != nil {
				return err
			}
			if s.builder.Rows() == batchRows {
				if err := seal(shard); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for shard := range states {
		if err == nil {
			err = seal(shard)
		}
	}
	return t, err
}

// kinetlDuckDB is the whole pipeline, at its default batch settings.
func kinetlDuckDB(ctx context.Context, p place, stream string) (tally, error) {
	source, err := kinetlSource(ctx, p, stream, "auto")
	if err != nil {
		return tally{}, err
	}
	return inFile(func(path string) (tally, error) {
		dest, err := duckdb.New(duckdb.Options{Path: path, Application: "bench"})
		if err != nil {
			return tally{}, err
		}
		var bytes atomic.Int64
		pipeline := &kinetl.Pipeline{
			Consumer: kinetl.Consumer{Source: source, Leases: &lease.Memory{}, Config: kinetl.ConsumerConfig{
				Worker: "bench", Once: true,
				Observe: func(e kinetl.Event) {
					if e.Kind == kinetl.EventFetched {
						bytes.Add(e.Bytes)
					}
				},
			}},
			NewDecoder: codec.NewJSON, Destination: dest,
			Config: kinetl.PipelineConfig{RowGroup: duckdb.RowGroup, Table: func(kinetl.ShardID) string { return "rows" }},
		}
		err = pipeline.Run(ctx)
		if closeErr := dest.Close(); err == nil {
			err = closeErr // with its checkpoint
		}
		return tally{bytes: bytes.Load()}, err
	})
}

// duckDBOwn is the rate at which DuckDB takes the same batches through the same
// destination, with nothing else to do: they are decoded before the clock begins.
func duckDBOwn(ctx context.Context, p place, stream string) (tally, error) {
	source, err := kinetlSource(ctx, p, stream, "auto")
	if err != nil {
		return tally{}, err
	}
	var parts []kinetl.Part
	through := map[kinetl.ShardID]kinetl.Position{}
	var schema kinetl.Schema
	t, err := decodeAll(ctx, source, func(shard kinetl.ShardID, rows arrow.RecordBatch, s kinetl.Schema, ids []kinetl.RowID) error {
		mu.Lock()
		defer mu.Unlock()
		rows.Retain()
		after, ok := through[shard]
		if !ok {
			after = kinetl.Oldest
		}
		through[shard] = ids[len(ids)-1].Position()
		schema = schema.Join(s, kinetl.Refuse)
		parts = append(parts, kinetl.Part{Shard: shard, After: after, Through: through[shard], Rows: rows, Schema: s, RowIDs: ids})
		return nil
	})
	if err != nil {
		return t, err
	}
	stored, err := inFile(func(path string) (tally, error) {
		dest, err := duckdb.New(duckdb.Options{Path: path, Application: "bench"})
		if err != nil {
			return tally{}, err
		}
		if _, err := dest.Prepare(ctx, "rows", schema, kinetl.Refuse); err != nil {
			return tally{}, err
		}
		for shard := range through {
			if _, err := dest.Claim(ctx, "rows", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err != nil {
				return tally{}, err
			}
		}
		clock.begin()
		for len(parts) > 0 {
			n := min(100_000/batchRows, len(parts)) // rows a transaction, as the pipeline's
			report, err := dest.Commit(ctx, "rows", parts[:n])
			if err != nil || len(report.Fenced) > 0 {
				return tally{}, fmt.Errorf("commit: %v, fenced %v", err, report.Fenced)
			}
			parts = parts[n:]
		}
		return tally{}, dest.Close()
	})
	stored.bytes = t.bytes
	return stored, err
}

// inFile runs f on a database file and counts the rows that it left.
func inFile(f func(path string) (tally, error)) (tally, error) {
	folder, err := os.MkdirTemp("", "kinetl-bench")
	if err != nil {
		return tally{}, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "kinetl.duckdb")
	t, err := f(path)
	if err != nil {
		return t, err
	}
	db, err := sql.Open("duckdb", path+"?access_mode=READ_ONLY")
	if err != nil {
		return t, err
	}
	defer db.Close()
	return t, db.QueryRow("SELECT count(*) FROM rows").Scan(&t.records)
}
