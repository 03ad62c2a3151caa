package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/kinesis"
)

func tailCommand() *cobra.Command {
	t := &tailer{}
	var from string
	var settings *awsconf.Settings
	cmd := &cobra.Command{
		Use:   "tail STREAM",
		Short: "Print the records of a stream as they come",
		Long: `Prints a line per record of STREAM (a name or an ARN): arrival, shard, sequence
number, partition key and payload, with tabs between. Records that a producer
library packed into one are taken apart, numbered behind their sequence number.
JSON is printed on one line, other text as it is, and bytes as base64.

A shard's records come in order, and a parent's before its children's; shards go
side by side. Nothing is stored, and no lease is taken: other readers share the
five calls a second of each shard.`,
		Example: `  kinetl tail orders
  kinetl tail orders --from 5m --json
  kinetl tail orders --from earliest --once --endpoint http://127.0.0.1:4567`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			start, err := parseFrom(from, time.Now())
			if err != nil {
				return exit(exitDocuments, err)
			}
			client, err := kinesisClient(cmd.Context(), settings)
			if err != nil {
				return err
			}
			t.stream, t.out, t.start = args[0], cmd.OutOrStdout(), start
			t.source = kinesis.NewSource(kinesis.Options{Client: client, Streams: []string{args[0]}})
			return t.run(cmd.Context())
		},
	}
	settings = awsFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&from, "from", "latest", "where to begin: latest, earliest, a time (RFC 3339), or an age such as 5m")
	f.StringVar(&t.shard, "shard", "", "id of the only shard to read; its children are not read then")
	f.BoolVar(&t.once, "once", false, "end at the tip of the stream")
	f.BoolVar(&t.asJSON, "json", false, "print one JSON object per record")
	return cmd
}

// fromLatest stands for the instant of the first listing, which is the service's.
const fromLatest kinetl.Position = ""

// parseFrom reads where to begin.
func parseFrom(text string, now time.Time) (kinetl.Position, error) {
	switch text {
	case "latest":
		return fromLatest, nil
	case "earliest":
		return kinetl.Oldest, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return kinetl.Since(now.Add(-age)), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		if t.After(now) {
			return "", fmt.Errorf("--from %s is yet to come", text)
		}
		return kinetl.Since(t), nil
	}
	return "", fmt.Errorf("--from %q is none of latest, earliest, a time such as 2026-11-30T00:00:00Z, an age such as 5m", text)
}

// tailer is one run of the command.
type tailer struct {
	stream string
	start  kinetl.Position
	shard  string
	once   bool
	asJSON bool
	source *kinesis.Source

	print sync.Mutex // held while lines are written
	out   io.Writer

	mu      sync.Mutex
	started map[string]bool // shards that are read or were
	done    map[string]bool // shards whose children may be read
}

func (t *tailer) run(ctx context.Context) error {
	listing, err := t.source.Shards(ctx, time.Time{})
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return classify(err)
	case len(listing.Shards) == 0:
		return exit(exitSurroundings, fmt.Errorf("stream %s has no shards: it is being created or deleted", t.stream))
	}
	t.started, t.done = map[string]bool{}, map[string]bool{}
	if err := t.begin(listing); err != nil {
		return exit(exitDocuments, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	t.follow(gctx, g, listing.Shards)
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return classify(err)
	}
	return nil
}

// begin settles where reading begins, and passes over what lies before it.
func (t *tailer) begin(listing kinetl.Listing) error {
	latest := t.start == fromLatest
	// The service refuses instants that are yet to come by its clock, which this
	// machine's may be ahead of.
	if now := kinetl.Since(listing.At); latest || t.start > now {
		t.start = now
	}
	if t.shard != "" && !slices.ContainsFunc(listing.Shards, func(s kinetl.ShardInfo) bool { return s.ID.Shard == t.shard }) {
		return fmt.Errorf("--shard %s: stream %s has no such shard", t.shard, t.stream)
	}
	for _, s := range listing.Shards {
		id := s.ID.Shard
		if t.shard != "" {
			t.started[id], t.done[id] = id != t.shard, true
		} else if latest && s.Closed {
			t.started[id], t.done[id] = true, true
		}
	}
	return nil
}

// follow starts to read every shard whose listed parents are done.
func (t *tailer) follow(ctx context.Context, g *errgroup.Group, listed []kinetl.ShardInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isListed := map[string]bool{}
	for _, s := range listed {
		isListed[s.ID.Shard] = true
	}
	for _, s := range listed {
		waits := slices.ContainsFunc(s.Parents, func(p string) bool { return isListed[p] && !t.done[p] })
		if waits || t.started[s.ID.Shard] {
			continue
		}
		t.started[s.ID.Shard] = true
		g.Go(func() error {
			ended, err := t.read(ctx, s)
			if err != nil || !ended || t.shard != "" {
				return err
			}
			children, err := t.childrenOf(ctx, s.ID.Shard)
			if err != nil {
				return err
			}
			t.mu.Lock()
			t.done[s.ID.Shard] = true
			t.mu.Unlock()
			t.follow(ctx, g, children)
			return nil
		})
	}
}

// childrenOf lists the shards anew until those that follow the ended one are there:
// the listing may lag behind the answer that told of the end.
func (t *tailer) childrenOf(ctx context.Context, ended string) ([]kinetl.ShardInfo, error) {
	for {
		listing, err := t.source.Shards(ctx, time.Time{})
		if err != nil {
			return nil, err
		}
		for _, s := range listing.Shards {
			if slices.Contains(s.Parents, ended) {
				return listing.Shards, nil
			}
		}
		if !sleepUntil(ctx, time.Now().Add(time.Second)) {
			return nil, ctx.Err()
		}
	}
}

// read prints a shard until its end, or with once until its tip.
func (t *tailer) read(ctx context.Context, s kinetl.ShardInfo) (ended bool, err error) {
	// Caught up now, as far as anybody knows: a start before the oldest record is no
	// reason to stop for somebody who only looks.
	reader, err := t.source.Read(ctx, s.ID, kinetl.Resume{After: t.start, CaughtUp: time.Now()})
	if err != nil {
		return false, err
	}
	defer reader.Close()
	for {
		if _, err := reader.Ready(ctx); err != nil {
			return false, err
		}
		f, err := reader.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		}
		if err := t.write(s.ID, f.Records); err != nil {
			return false, err
		}
		// The tip of a closed shard is not the stream's: its children come next.
		if t.once && !f.CaughtUp.IsZero() && !s.Closed {
			return false, nil
		}
	}
}

func (t *tailer) write(shard kinetl.ShardID, records []kinetl.Record) error {
	var b bytes.Buffer
	for i := range records {
		if err := writeRecord(&b, shard, &records[i], t.asJSON); err != nil {
			return err
		}
	}
	t.print.Lock()
	defer t.print.Unlock()
	_, err := t.out.Write(b.Bytes())
	return err
}
