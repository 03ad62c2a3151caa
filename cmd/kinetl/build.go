package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/dest/duckdb"
	"github.com/kinetl/kinetl/dest/postgres"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/lease"
)

// job is a pipeline that was built from documents, and what must be closed after it.
type job struct {
	name     string
	plan     config.Plan
	pipeline *kinetl.Pipeline
	closers  []func() error
}

func (j *job) close() error {
	var errs []error
	for i := len(j.closers) - 1; i >= 0; i-- {
		errs = append(errs, j.closers[i]())
	}
	return errors.Join(errs...)
}

// buildOptions are what a command adds to the documents.
type buildOptions struct {
	worker  string // when the pipeline names none
	adopt   bool
	rewrite bool // tables of any size, to widen a column
	logger  *slog.Logger
	observe func(kinetl.Event)
}

// build makes a pipeline of one plan. It opens the destination and the lease store,
// and calls no AWS service.
func build(ctx context.Context, plan config.Plan, opts buildOptions) (_ *job, err error) {
	p := plan.Pipeline
	j := &job{name: p.Metadata.Name, plan: plan}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pipeline %s: %w", j.name, err), j.close())
		}
	}()
	if at := plan.Source.Spec.Config.StartTime(); at.After(time.Now()) {
		return nil, exit(exitDocuments, fmt.Errorf("startPosition %s lies in the future: Kinesis begins no later than now; use latest", at.Format(time.RFC3339)))
	}
	source, err := buildSource(ctx, plan, opts.logger)
	if err != nil {
		return nil, exit(exitSurroundings, err)
	}
	dest, group, err := buildDestination(ctx, plan, opts)
	if err != nil {
		return nil, exit(exitSurroundings, err)
	}
	j.closers = append(j.closers, dest.Close)
	_, records := shareMemory(plan)
	worker := opts.worker
	if p.Spec.WorkerID != "" {
		worker = p.Spec.WorkerID + worker[strings.LastIndexByte(worker, '-'):]
	}
	leases, err := openLeases(ctx, plan, worker, opts.logger)
	if err != nil {
		return nil, exit(exitSurroundings, explain(err))
	}
	j.closers = append(j.closers, leases.close)
	j.pipeline = &kinetl.Pipeline{
		Consumer: kinetl.Consumer{Source: source, Leases: leases.Store, Config: kinetl.ConsumerConfig{
			Worker: worker, Start: startOf(plan.Source.Spec.Config), Failover: p.Spec.Leases.Failover,
			MaxLeases: p.Spec.Leases.MaxPerWorker, Watch: leases.watch, Observe: opts.observe,
		}},
		NewDecoder:  codec.NewJSON,
		Destination: dest,
		Config: kinetl.PipelineConfig{
			Table:    func(s kinetl.ShardID) string { return p.TableFor(s.StreamName()) },
			Batch:    kinetl.Batch{Rows: p.Spec.Batch.Rows, Bytes: int64(p.Spec.Batch.Bytes), Age: p.Spec.Batch.Age},
			RowGroup: group, Memory: records, TypeChanges: changesOf(p), Metadata: metadataOf(plan),
			FailUndecodable: p.Spec.Undecodable == "fail",
		},
	}
	return j, nil
}

// overhead is what the program takes beside records and DuckDB's buffers.
const overhead = 48 << 20

// shardHeap is what a shard that is held takes beside its records: goroutines, a
// builder, a reader. It is heap that lives, so the limit must leave room for it.
const shardHeap = 96 << 10

// heapLimit makes the garbage collector work harder before the heap doubles: the
// pipelines' memory is a promise about the process (R27), and DuckDB's share of it is
// not on Go's heap. A limit below what lives would have it collect all the time.
type heapLimit struct {
	fixed int64
	held  atomic.Int64 // shards
}

func limitMemory(plans []config.Plan) *heapLimit {
	l := &heapLimit{fixed: overhead}
	for _, plan := range plans {
		_, records := shareMemory(plan)
		l.fixed += records
	}
	debug.SetMemoryLimit(l.fixed)
	return l
}

// observe follows how many shards are held.
func (l *heapLimit) observe(e kinetl.Event) {
	var held int64
	switch e.Kind {
	case kinetl.EventLeaseTaken:
		held = l.held.Add(1)
	case kinetl.EventLeaseReleased, kinetl.EventLeaseLost, kinetl.EventEnded:
		held = l.held.Add(-1)
	default:
		return
	}
	if held%16 == 0 { // setting it stops all goroutines for a moment
		debug.SetMemoryLimit(l.fixed + (held+16)*shardHeap)
	}
}

// shareMemory splits a pipeline's memory between DuckDB and records. What neither
// gets is for what it takes to decode a page and for garbage; TestBlockedSinkMemory
// measures the whole.
func shareMemory(plan config.Plan) (duckDB, records int64) {
	memory := int64(plan.Pipeline.Spec.Memory)
	c, ok := plan.Destination.Spec.Config.(*config.DuckDB)
	if !ok {
		return 0, memory / 3
	}
	if duckDB = int64(c.MemoryLimit); duckDB == 0 {
		duckDB = max(memory/4, 64<<20)
	}
	return duckDB, max((memory-duckDB)/3, memory/8)
}

// eventWindow is how many bytes of each shard's event stream may wait in memory, beside
// the records that count as such: less than one event, which has up to a few MB.
const eventWindow = 256 << 10

func sourceOptions(cfg aws.Config, plan config.Plan) kinesis.Options {
	c := plan.Source.Spec.Config
	opts := kinesis.Options{
		Client: awskinesis.NewFromConfig(cfg), ReadShare: c.ReadShare, Wire: kinesis.Wire(c.Wire),
		Idle: plan.Pipeline.Spec.Batch.Age / 2, // who wants rows soon wants them read soon
	}
	if c.Consumer == "fan-out" {
		opts.Consumer, opts.ConsumerName, opts.ConsumerARNs = kinesis.FanOut, plan.Pipeline.Spec.Application, map[string]string{}
		opts.Events = awskinesis.NewFromConfig(awsconf.EventStreams(cfg, eventWindow))
		for _, arn := range c.ConsumerARNs {
			stream, _, _ := strings.Cut(arn, "/consumer/")
			opts.ConsumerARNs[stream] = arn
		}
	}
	if c.StreamPattern != "" {
		opts.Pattern = regexp.MustCompile(c.StreamPattern) // checked with the documents
	}
	return opts
}

// buildDestination opens the destination, and says how many rows it stores as one
// unit, if it has such a unit.
func buildDestination(ctx context.Context, plan config.Plan, opts buildOptions) (dest kinetl.Destination, group int, err error) {
	d, p := plan.Destination, plan.Pipeline
	switch c := d.Spec.Config.(type) {
	case *config.DuckDB:
		limit, _ := shareMemory(plan)
		group = duckdb.RowGroup
		dest, err = duckdb.New(duckdb.Options{
			Path: c.Path, Namespace: p.Spec.Destination.Namespace, Application: p.Spec.Application,
			Adopt: opts.adopt, MemoryLimit: limit, Threads: c.Threads, RewriteLimit: rewriteLimit(opts),
			Observe: func(phase string) { opts.logger.Debug("duckdb", "phase", phase) },
		})
	case *config.Postgres:
		o := postgresOptions(plan, opts)
		o.Observe = func(phase string) { opts.logger.Debug("postgres", "phase", phase) }
		dest, err = postgres.New(ctx, o)
	default:
		err = fmt.Errorf("connector %s can't be run by this version", d.Spec.Connector)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("destination %s: %w", d.Metadata.Name, err)
	}
	return dest, group, nil
}

func postgresOptions(plan config.Plan, opts buildOptions) postgres.Options {
	c, p := plan.Destination.Spec.Config.(*config.Postgres), plan.Pipeline
	return postgres.Options{
		URL: c.URL.Reveal(), Password: c.Password.Reveal(), Schema: p.Spec.Destination.Namespace,
		Application: p.Spec.Application, Adopt: opts.adopt, RewriteLimit: rewriteLimit(opts), LeaseTime: p.Spec.Leases.Failover,
	}
}

// rewriteLimit is the largest table that is rewritten; 0: the destination's own.
func rewriteLimit(opts buildOptions) int64 {
	if opts.rewrite {
		return math.MaxInt64
	}
	return 0
}

func startOf(c config.KinesisSource) lease.Start {
	switch {
	case c.StartPosition == "latest":
		return lease.Start{Checkpoint: lease.Latest}
	case !c.StartTime().IsZero():
		return lease.Start{Checkpoint: lease.AtTimestamp, Instant: c.StartTime()}
	}
	return lease.Start{Checkpoint: lease.TrimHorizon}
}

func changesOf(p *config.Pipeline) kinetl.TypeChanges {
	if p.Spec.Destination.TypeChanges == "allow" {
		return kinetl.Allow
	}
	return kinetl.Refuse
}

// metadataOf adds the stream's name to rows where several streams share a table.
func metadataOf(plan config.Plan) kinetl.MetadataMode {
	shared := len(plan.Streams()) != 1 && !strings.Contains(plan.Pipeline.Spec.Destination.Table, "{stream}")
	switch {
	case plan.Pipeline.Spec.RecordMetadata == "object":
		return kinetl.MetadataObject
	case plan.Pipeline.Spec.RecordMetadata == "none":
		return kinetl.MetadataNone
	case shared:
		return kinetl.MetadataColumnsStream
	}
	return kinetl.MetadataColumns
}
