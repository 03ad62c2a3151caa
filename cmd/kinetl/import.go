package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/importer"
)

func importCommand() *cobra.Command {
	im := &importing{}
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Bring positions of another system over to leases",
		Long: `Reads the DynamoDB table in which another system keeps how far it has read, and
makes leases of the pipeline in FILE that stand at the same places. The other
system's table is only read. A lease that is there already is left as it is.

  openflow          Openflow's connector, NiFi's ConsumeKinesis
  bento             input aws_kinesis of Bento
  redpanda-connect  input aws_kinesis of Redpanda Connect
  vmware-go-kcl     vmware-go-kcl, version 1 or 2

Stop the other system first. Nothing is written while one of its nodes lives, or
while there is a row that can't be understood. A table of KCL needs no import:
name it as leases.table.

With --in-place Openflow's table becomes the lease table and keeps its name; its
items are gone then, but for the backup. It goes by way of TABLE_migration, and a
call that was cut short is finished by the next.`,
		Example: "  kinetl import pipeline.yaml --from openflow --dry-run\n  kinetl import pipeline.yaml --from bento --table checkpoints\n" +
			"  kinetl import pipeline.yaml --from openflow --in-place --backup orders.jsonl",
		Args: needFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := im.run(cmd.Context(), args, loggerTo(cmd.Context(), cmd.ErrOrStderr()))
			if im.report.From == "" {
				return err
			}
			return errors.Join(err, im.show(cmd.OutOrStdout()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&im.from, "from", "", "the other `system`: openflow, bento, redpanda-connect or vmware-go-kcl")
	f.StringVar(&im.table, "table", "", "the other system's `table`; default the application, where that is its rule")
	f.BoolVar(&im.dryRun, "dry-run", false, "show what would be written, and write nothing")
	f.BoolVar(&im.inPlace, "in-place", false, "make the other system's table, which leases.table names, the lease table")
	f.StringVar(&im.backup, "backup", "", "`file` that gets every item of that table first, one JSON object a line")
	f.BoolVar(&im.asJSON, "json", false, "print one JSON document")
	f.StringVar(&im.secrets, "secrets", "", "`folder` with a file per secret; else the environment")
	return cmd
}

// importing is one run of the command.
type importing struct {
	from, table    string
	dryRun, asJSON bool
	inPlace        bool
	backup         string
	secrets        string

	report importReport
}

// importReport is what the command prints.
type importReport struct {
	Pipeline string           `json:"pipeline"`
	From     string           `json:"from"`
	Table    string           `json:"table"`
	Leases   string           `json:"leases"` // where they are written
	DryRun   bool             `json:"dry_run"`
	Alive    []string         `json:"alive"` // nodes of the other system
	Shards   []importedShard  `json:"shards"`
	LeftOut  []importer.Fault `json:"left_out"`
	Faults   []importer.Fault `json:"faults"`

	asked string // the lease store that the document names, when Leases is another one
}

// importedShard is a lease and what became of it.
type importedShard struct {
	Stream      string           `json:"stream"`
	Shard       string           `json:"shard"`
	Key         string           `json:"lease_key"`
	Parents     []string         `json:"parents,omitempty"`
	Position    string           `json:"position"`
	SubSequence uint64           `json:"sub_sequence,omitempty"`
	Whole       bool             `json:"whole_record"` // of an aggregate all is read
	Start       *time.Time       `json:"start,omitempty"`
	Outcome     importer.Outcome `json:"outcome"`
}

func (im *importing) run(ctx context.Context, files []string, logger *slog.Logger) error {
	layout, known := importer.Layouts()[im.from]
	if !known {
		return exit(exitDocuments, fmt.Errorf("--from %q is none of %s", im.from, strings.Join(slices.Sorted(maps.Keys(importer.Layouts())), ", ")))
	}
	plan, err := im.onePlan(files)
	if err != nil {
		return err
	}
	if err := im.chooseTables(&plan); err != nil {
		return exit(exitDocuments, err)
	}
	bring := im.bring
	if im.inPlace && !im.dryRun {
		bring = im.replace
	}
	if err = bring(ctx, layout, plan, logger); err != nil {
		err = fmt.Errorf("pipeline %s: %w", plan.Pipeline.Metadata.Name, err)
	}
	return classify(err)
}

func (im *importing) onePlan(files []string) (config.Plan, error) {
	plans, err := loadPlans(files, im.secrets)
	if err != nil {
		return config.Plan{}, err
	}
	if len(plans) != 1 {
		return config.Plan{}, exit(exitDocuments, fmt.Errorf("%s: %d pipelines: name the documents of the one whose leases are to be written", strings.Join(files, ", "), len(plans)))
	}
	return plans[0], nil
}

// chooseTables settles which table is read, and which is written where the document
// names the same: one table can't have both keys.
func (im *importing) chooseTables(plan *config.Plan) error {
	spec := &plan.Pipeline.Spec
	if im.table == "" {
		if im.from == "bento" || im.from == "redpanda-connect" {
			return fmt.Errorf("name the table with --table: it is dynamodb.table of the input aws_kinesis")
		}
		im.table = spec.Application
	}
	im.report = importReport{
		Pipeline: plan.Pipeline.Metadata.Name, From: im.from, Table: im.table, DryRun: im.dryRun,
		Alive: []string{}, Shards: []importedShard{}, LeftOut: []importer.Fault{}, Faults: []importer.Fault{},
	}
	if im.inPlace || im.backup != "" {
		im.report.Leases = leasesName(*plan)
		return im.checkInPlace(spec.Leases)
	}
	if spec.Leases.Store == "dynamodb" && spec.Leases.Table == im.table {
		im.report.asked = spec.Leases.Table
		spec.Leases.Table = spec.Application + "-kinetl"
		if spec.Leases.Table == im.table {
			return fmt.Errorf("leases.table is %s, the other system's table: give kinetl another one", im.table)
		}
	}
	im.report.Leases = leasesName(*plan)
	return nil
}

// bring checks everything before it writes anything.
func (im *importing) bring(ctx context.Context, layout importer.Layout, plan config.Plan, logger *slog.Logger) error {
	var existing []lease.Lease
	if !im.inPlace {
		var err error
		if existing, err = existingLeases(ctx, plan); err != nil {
			return err
		}
	}
	mapping, err := im.read(ctx, layout, plan, existing)
	if err != nil {
		return err
	}
	outcomes := make([]importer.Outcome, len(mapping.Leases))
	for i, l := range mapping.Leases {
		outcomes[i] = importer.Compare(l, existing)
	}
	im.report.note(mapping, outcomes)
	if err := im.refusal(mapping); err != nil {
		return fmt.Errorf("table %s: %w", im.table, err)
	}
	if im.dryRun {
		return nil
	}
	store, err := openLeases(ctx, plan, workerID(), logger)
	if err != nil {
		return exit(exitSurroundings, explain(err))
	}
	outcomes, err = importer.Write(ctx, store, mapping.Leases)
	im.report.note(mapping, outcomes)
	if err != nil {
		err = fmt.Errorf("%w: run the command again before kinetl run: what is there already is left alone", err)
	}
	return errors.Join(err, store.close())
}

// refusal is why nothing may be written; a dry run tells of nodes in its report.
func (im *importing) refusal(m importer.Mapping) error {
	switch alive := im.report.Alive; {
	case len(m.Faults) > 0:
		return fmt.Errorf("%d row(s) can't be brought over, nothing was written", len(m.Faults))
	case len(m.Leases) == 0:
		return errors.New("it holds no position of a stream that the pipeline reads: nothing was written")
	case len(alive) > 0 && !im.dryRun:
		return fmt.Errorf("the other system is at work, stop it and wait for a minute: %s: nothing was written", strings.Join(alive, ", "))
	}
	return nil
}

// existingLeases are those that the pipeline has; none before it has run.
func existingLeases(ctx context.Context, plan config.Plan) ([]lease.Lease, error) {
	leases, err := readLeases(ctx, plan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, exit(exitSurroundings, explain(err))
	}
	return leases, nil
}

// read reads the other system's table and the shards of the streams, and maps the one
// to the other.
func (im *importing) read(ctx context.Context, layout importer.Layout, plan config.Plan, existing []lease.Lease) (importer.Mapping, error) {
	var none importer.Mapping
	cfg, err := awsconf.Load(ctx, serviceSettings(plan.LeaseService()))
	if err != nil {
		return none, exit(exitSurroundings, fmt.Errorf("table %s: %w", im.table, err))
	}
	rows, faults, err := importer.Read(ctx, cfg, layout, im.table)
	if errors.Is(err, fs.ErrNotExist) {
		return none, exit(exitSurroundings, err)
	}
	if err != nil {
		return none, err
	}
	return im.mapRows(ctx, layout, plan, existing, rows, faults)
}

func (im *importing) mapRows(ctx context.Context, layout importer.Layout, plan config.Plan, existing []lease.Lease, rows []importer.Row, faults []importer.Fault) (importer.Mapping, error) {
	var none importer.Mapping
	im.report.Alive = append(im.report.Alive[:0], importer.Alive(rows, time.Now())...)
	listing, err := im.list(ctx, plan, existing)
	if err != nil {
		return none, err
	}
	mapping := importer.Map(layout, rows, listing, startOf(plan.Source.Spec.Config))
	mapping.Faults = append(faults, mapping.Faults...)
	if perStream := im.from == "vmware-go-kcl"; perStream && streamsOf(listing) > 1 {
		return none, exit(exitDocuments, fmt.Errorf("a table of %s is of one stream, and the pipeline reads %d: name that stream in the source", layout.Name, streamsOf(listing)))
	}
	return mapping, nil
}

func (im *importing) list(ctx context.Context, plan config.Plan, existing []lease.Lease) (importer.Listing, error) {
	form, err := lease.FormOf(existing)
	if err != nil {
		return importer.Listing{}, err
	}
	source, err := buildSource(ctx, plan, nil)
	if err != nil {
		return importer.Listing{}, exit(exitSurroundings, err)
	}
	listing, err := source.Shards(ctx, time.Time{})
	if err != nil {
		return importer.Listing{}, exit(exitSurroundings, explain(err))
	}
	out := importerListing(listing, form)
	if form == lease.FormShort && streamsOf(out) > 1 {
		return out, exit(exitDocuments, fmt.Errorf("%s has keys of KCL's single-stream form, and the pipeline reads %d streams: name one in the source", im.report.Leases, streamsOf(out)))
	}
	return out, nil
}

func streamsOf(listing importer.Listing) int {
	arns := map[string]bool{}
	for _, s := range listing.Shards {
		arns[s.ARN] = true
	}
	return len(arns)
}

// importerListing is a listing in the importer's words.
func importerListing(listing kinetl.Listing, form lease.Form) importer.Listing {
	out := importer.Listing{At: listing.At}
	for _, s := range listing.Shards {
		key, stream := kinetl.LeaseKey(s.ID), ""
		if form == lease.FormShort {
			key, stream = s.ID.Shard, lease.StreamID(s.ID.Stream, s.ID.Created)
		}
		out.Shards = append(out.Shards, importer.Shard{
			Shard: lease.Shard{
				Key: key, Group: lease.Group(key), ID: s.ID.Shard, Parents: s.Parents, Stream: stream,
				StartingHashKey: s.StartingHashKey, EndingHashKey: s.EndingHashKey,
			},
			ARN: s.ID.Stream, Closed: s.Closed, First: s.FirstSeq, Last: s.LastSeq,
		})
	}
	return out
}

// note fills in the shards. Leases that were not come to are missing.
func (r *importReport) note(m importer.Mapping, outcomes []importer.Outcome) {
	r.Shards = r.Shards[:0]
	for i, l := range m.Leases {
		stream, shard := placeOf(l)
		s := importedShard{
			Stream: stream, Shard: shard, Key: l.Key, Parents: l.Parents, Position: l.Checkpoint, Whole: l.Sub == importer.Whole,
			Outcome: importer.Missing,
		}
		if !s.Whole {
			s.SubSequence = l.Sub
		}
		if !l.Start.IsZero() {
			s.Start = aws.Time(l.Start.UTC())
		}
		if i < len(outcomes) {
			s.Outcome = outcomes[i]
		}
		r.Shards = append(r.Shards, s)
	}
	r.LeftOut, r.Faults = append(append(r.LeftOut[:0], m.LeftOut...), m.Foreign...), append(r.Faults[:0], m.Faults...)
}

func (im *importing) show(out io.Writer) error {
	r := im.report
	if im.asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	if len(r.Shards) > 0 {
		err := table(out, "STREAM\tSHARD\tPARENTS\tPOSITION\tLEASE", func(w io.Writer) {
			for _, s := range r.Shards {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.Stream, s.Shard, dash(strings.Join(s.Parents, "+")), s.place(), r.word(s.Outcome))
			}
		})
		if err != nil {
			return err
		}
	}
	for _, f := range r.LeftOut {
		fmt.Fprintf(out, "left out: %s: %s\n", f.Row, f.Reason)
	}
	for _, f := range r.Faults {
		fmt.Fprintf(out, "not understood: %s: %s\n", f.Row, f.Reason)
	}
	if r.DryRun && len(r.Alive) > 0 {
		fmt.Fprintf(out, "alive: %s: stop it, these positions move\n", strings.Join(r.Alive, ", "))
	}
	counts := map[importer.Outcome]int{}
	for _, s := range r.Shards {
		counts[s.Outcome]++
	}
	fmt.Fprintf(out, "%s: %d written, %d there already, %d there at another position, %d not written\n",
		r.Leases, counts[importer.Written], counts[importer.Exists], counts[importer.Differs], counts[importer.Missing])
	if r.asked != "" {
		fmt.Fprintf(out, "next: say leases.table: %s in the document, since %s is the other system's\n", strings.TrimPrefix(r.Leases, "DynamoDB table "), r.asked)
	}
	return nil
}

func (s importedShard) place() string {
	switch {
	case s.SubSequence > 0:
		return fmt.Sprintf("%s.%d", s.Position, s.SubSequence)
	case s.Start != nil:
		return s.Position + " " + s.Start.Format(time.RFC3339)
	}
	return s.Position
}

// word is an outcome for people.
func (r importReport) word(o importer.Outcome) string {
	switch {
	case o == importer.Exists:
		return "there already"
	case o == importer.Differs:
		return "there at another position"
	case o == importer.Missing && r.DryRun:
		return "would be written"
	case o == importer.Missing:
		return "not written"
	}
	return string(o)
}
