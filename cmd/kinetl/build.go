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
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/dest/duckdb"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/sqlitelease"
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
	dest, records, err := buildDestination(plan, opts)
	if err != nil {
		return nil, exit(exitSurroundings, err)
	}
	j.closers = append(j.closers, dest.Close)
	worker := opts.worker
	if p.Spec.WorkerID != "" {
		worker = p.Spec.WorkerID + worker[strings.LastIndexByte(worker, '-'):]
	}
	leases, err := sqlitelease.Open(p.Spec.Leases.Path, worker)
	if err != nil {
		return nil, exit(exitSurroundings, err)
	}
	j.closers = append(j.closers, leases.Close)
	j.pipeline = &kinetl.Pipeline{
		Consumer: kinetl.Consumer{Source: source, Leases: leases, Config: kinetl.ConsumerConfig{
			Worker: worker, Start: startOf(plan.Source.Spec.Config), Failover: p.Spec.Leases.Failover,
			MaxLeases: p.Spec.Leases.MaxPerWorker, Observe: opts.observe,
		}},
		NewDecoder:  codec.NewJSON,
		Destination: dest,
		Config: kinetl.PipelineConfig{
			Table:    func(s kinetl.ShardID) string { return p.TableFor(s.StreamName()) },
			Batch:    kinetl.Batch{Rows: p.Spec.Batch.Rows, Bytes: int64(p.Spec.Batch.Bytes), Age: p.Spec.Batch.Age},
			RowGroup: duckdb.RowGroup, Memory: records, TypeChanges: changesOf(p), Metadata: metadataOf(plan),
			FailUndecodable: p.Spec.Undecodable == "fail",
		},
	}
	return j, nil
}

// overhead is what the program takes beside records and DuckDB's buffers.
const overhead = 48 << 20

// limitMemory makes the garbage collector work harder before the heap doubles: the
// pipelines' memory is a promise about the process (R27), and DuckDB's share of it
// is not on Go's heap.
func limitMemory(plans []config.Plan) {
	total := int64(overhead)
	for _, plan := range plans {
		_, records := shareMemory(plan)
		total += records
	}
	debug.SetMemoryLimit(total)
}

// shareMemory splits a pipeline's memory between DuckDB and records. What neither
// gets is for what it takes to decode a page and for garbage; TestBlockedSinkMemory
// measures the whole.
func shareMemory(plan config.Plan) (duckDB, records int64) {
	memory := int64(plan.Pipeline.Spec.Memory)
	if c, ok := plan.Destination.Spec.Config.(*config.DuckDB); ok {
		duckDB = int64(c.MemoryLimit)
	}
	if duckDB == 0 {
		duckDB = max(memory/4, 64<<20)
	}
	return duckDB, max((memory-duckDB)/3, memory/8)
}

// kinesisSettings is how a source's streams are reached.
func kinesisSettings(s config.Source) awsconf.Settings {
	c := s.Spec.Config
	return awsconf.Settings{
		Region: c.Region, Endpoint: c.Endpoint,
		AccessKeyID: c.AccessKeyID.Reveal(), SecretAccessKey: c.SecretAccessKey.Reveal(),
		Role: s.Spec.AWS.Role.ARN, ExternalID: s.Spec.AWS.Role.ExternalID,
	}
}

func buildSource(ctx context.Context, plan config.Plan, logger *slog.Logger) (*kinesis.Source, error) {
	cfg, err := awsconf.Load(ctx, kinesisSettings(*plan.Source))
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", plan.Source.Metadata.Name, err)
	}
	opts := sourceOptions(cfg, plan)
	opts.Logger = logger
	return kinesis.NewSource(opts), nil
}

func sourceOptions(cfg aws.Config, plan config.Plan) kinesis.Options {
	c := plan.Source.Spec.Config
	opts := kinesis.Options{Client: awskinesis.NewFromConfig(cfg), Streams: plan.Streams(), ReadShare: c.ReadShare, Wire: kinesis.Wire(c.Wire)}
	if c.StreamPattern != "" {
		opts.Pattern = regexp.MustCompile(c.StreamPattern) // checked with the documents
	}
	return opts
}

// buildDestination opens the destination, and says how many bytes of the
// pipeline's memory are left for records: DuckDB's own buffers come out of the
// same budget (R27).
func buildDestination(plan config.Plan, opts buildOptions) (_ kinetl.Destination, records int64, _ error) {
	d, p := plan.Destination, plan.Pipeline
	c, ok := d.Spec.Config.(*config.DuckDB)
	if !ok {
		return nil, 0, fmt.Errorf("destination %s: connector %s can't be run by this version", d.Metadata.Name, d.Spec.Connector)
	}
	limit, records := shareMemory(plan)
	var rewriteLimit int64 // the destination's own
	if opts.rewrite {
		rewriteLimit = math.MaxInt64
	}
	dest, err := duckdb.New(duckdb.Options{
		Path: c.Path, Namespace: p.Spec.Destination.Namespace, Application: p.Spec.Application,
		Adopt: opts.adopt, MemoryLimit: limit, Threads: c.Threads, RewriteLimit: rewriteLimit,
		Observe: func(phase string) { opts.logger.Debug("duckdb", "phase", phase) },
	})
	if err != nil {
		return nil, 0, fmt.Errorf("destination %s: %w", d.Metadata.Name, err)
	}
	return dest, records, nil
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
