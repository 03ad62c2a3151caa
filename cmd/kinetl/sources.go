package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/kinesis"
)

// sources reads the streams of one Source document: a reader of streams for each way in
// which some of them are reached. Their shards are one listing.
type sources []group

type group struct {
	*kinesis.Source
	cfg     aws.Config
	streams []string // as the documents name them; empty: every one that can be listed
}

// buildSource calls no service.
func buildSource(ctx context.Context, plan config.Plan, logger *slog.Logger, change ...func(*kinesis.Options)) (sources, error) {
	var out sources
	for _, g := range plan.StreamGroups() {
		cfg, err := awsconf.Load(ctx, serviceSettings(g.Service))
		if err != nil {
			of := ""
			if len(g.Streams) > 0 {
				of = ", " + strings.Join(g.Streams, ", ")
			}
			return nil, fmt.Errorf("source %s%s: %w", plan.Source.Metadata.Name, of, err)
		}
		opts := sourceOptions(cfg, plan)
		opts.Streams, opts.Logger = g.Streams, logger
		for _, c := range change {
			c(&opts)
		}
		out = append(out, group{kinesis.NewSource(opts), cfg, g.Streams})
	}
	return out, nil
}

// Shards implements kinetl.Source.
func (s sources) Shards(ctx context.Context, openAt time.Time) (kinetl.Listing, error) {
	var out kinetl.Listing
	for _, g := range s {
		listing, err := g.Source.Shards(ctx, openAt)
		if err != nil {
			return kinetl.Listing{}, err
		}
		out.Shards = append(out.Shards, listing.Shards...)
		if out.At.IsZero() || listing.At.Before(out.At) {
			out.At = listing.At // an instant that lies before each of the answers
		}
	}
	return out, nil
}

// Read implements kinetl.Source. Opening a reader makes no call: who does not read the
// shard's stream says so at once.
func (s sources) Read(ctx context.Context, shard kinetl.ShardID, from kinetl.Resume) (reader kinetl.Reader, err error) {
	for _, g := range s {
		if reader, err = g.Source.Read(ctx, shard, from); err == nil {
			return reader, nil
		}
	}
	return nil, err
}
