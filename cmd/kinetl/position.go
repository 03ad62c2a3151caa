package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/config"
)

func positionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "position", Short: "Look at positions in shards, and move them", Example: "  kinetl position show pipeline.yaml", RunE: needSubcommand}
	cmd.AddCommand(stateCommand("show FILE...", "Show through which record each shard is stored", `Shows the checkpoint of each shard: the sequence number and sub-sequence number
through which its table durably holds it. The table's own watermark is at or
beyond it, never behind.`, "  kinetl position show pipeline.yaml", showPositions))
	cmd.AddCommand(setPositionCommand(), resetPositionCommand())
	return cmd
}

const positionNotes = `
The table's watermarks move first, all in one transaction, recorded in _kinetl_gaps
with the reason; then the leases. Workers in DynamoDB and PostgreSQL may run
meanwhile; a DuckDB file must be free.

Rows that are stored already stay, and what is read again is stored again. With
--delete-rows the rows and dead letters that will be read again are deleted in the
transaction that moves the watermarks: those of each shard from the first record on
that the stream still has after the new position. What has left the stream stays. A
table whose rows do not tell their records (recordMetadata: none) is refused. With
--dry-run nothing is changed, and the answer is what would be.

A shard that is finished is moved only together with the shards that descend from it
(--descendants), which then begin anew: its records would come after theirs.`

func setPositionCommand() *cobra.Command {
	r := &repositioner{}
	cmd := &cobra.Command{
		Use:   "set FILE... --to POSITION --reason TEXT",
		Short: "Move shards to a position",
		Long: `Moves shards to a position: oldest, latest, a time (RFC 3339), or a sequence number
after which reading goes on, with SEQUENCE:SUB inside an aggregate. A sequence number
is one shard's, so it needs --shard.
` + positionNotes,
		Example: "  kinetl position set pipeline.yaml --to 2026-11-30T00:00:00Z --reason 'bad rows since midnight'\n  kinetl position set pipeline.yaml --shard shardId-000000000003 --to 49645 --reason 'skip'\n  kinetl position set pipeline.yaml --to 2026-11-30T00:00:00Z --delete-rows --dry-run",
		Args:    needFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&r.to, "to", "", "oldest, latest, a time, or a sequence `number`")
	r.flags(cmd)
	return cmd
}

func resetPositionCommand() *cobra.Command {
	r := &repositioner{reset: true}
	cmd := &cobra.Command{
		Use:     "reset FILE... --reason TEXT",
		Short:   "Move shards back to where the document says that reading begins",
		Long:    "Moves shards to the startPosition of their source, as set does.\n" + positionNotes,
		Example: "  kinetl position reset pipeline.yaml --descendants --reason 'load everything again'",
		Args:    needFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	r.flags(cmd)
	return cmd
}

// repositioner is one run of either command.
type repositioner struct {
	reset               bool
	to, reason, secrets string
	shards              []string
	descendants, asJSON bool
	deleteRows, dryRun  bool
}

func (r *repositioner) flags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&r.shards, "shard", nil, "shard `id`, with its stream where it is not the only one: STREAM/ID; may be repeated; default: every shard")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`text` that _kinetl_gaps keeps with the move")
	cmd.Flags().BoolVar(&r.descendants, "descendants", false, "move the shards that descend from a finished one to their beginning")
	cmd.Flags().BoolVar(&r.deleteRows, "delete-rows", false, "delete the rows and dead letters that will be read again")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "change nothing, show what would be")
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print one JSON document")
	cmd.Flags().StringVar(&r.secrets, "secrets", "", "`folder` with a file per secret; else the environment")
}

// moved is one shard as the command prints it.
type moved struct {
	Pipeline string `json:"pipeline"`
	Stream   string `json:"stream"`
	Shard    string `json:"shard"`
	Table    string `json:"table"`
	From     string `json:"from"`
	To       string `json:"to"`

	Deleted *deleted `json:"deleted,omitempty"` // with --delete-rows
}

type deleted struct {
	Rows        int64 `json:"rows"`
	DeadLetters int64 `json:"dead_letters"`
}

func (r *repositioner) run(ctx context.Context, files []string, out io.Writer) error {
	switch {
	case r.reason == "" && !r.dryRun:
		return exit(exitDocuments, errors.New("say why, with --reason: _kinetl_gaps keeps it"))
	case r.to == "" && !r.reset:
		return exit(exitDocuments, errors.New("say where to, with --to: oldest, latest, a time or a sequence number"))
	}
	plans, err := loadPlans(files, r.secrets)
	if err != nil {
		return err
	}
	if len(plans) != 1 {
		return exit(exitDocuments, fmt.Errorf("name the documents of one pipeline, these hold %d", len(plans)))
	}
	done, err := r.plan(ctx, plans[0])
	if err != nil {
		return err
	}
	list := []moved{}
	for _, m := range done {
		line := moved{Pipeline: plans[0].Pipeline.Metadata.Name, Stream: m.Shard.StreamName(), Shard: m.Shard.Shard, Table: m.Table, From: m.From.String(), To: m.To.String()}
		if r.deleteRows {
			line.Deleted = &deleted{m.Deleted.Rows, m.Deleted.DeadLetters}
		}
		list = append(list, line)
	}
	if r.asJSON {
		return json.NewEncoder(out).Encode(list)
	}
	if r.deleteRows {
		return table(out, "STREAM\tSHARD\tTABLE\tFROM\tTO\tROWS DELETED\tDEAD LETTERS", func(w io.Writer) {
			for _, m := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\n", m.Stream, m.Shard, m.Table, m.From, m.To, m.Deleted.Rows, m.Deleted.DeadLetters)
			}
		})
	}
	return table(out, "STREAM\tSHARD\tTABLE\tFROM\tTO", func(w io.Writer) {
		for _, m := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.Stream, m.Shard, m.Table, m.From, m.To)
		}
	})
}

func (r *repositioner) plan(ctx context.Context, plan config.Plan) (done []kinetl.Repositioned, err error) {
	logger := slog.New(slog.DiscardHandler)
	// Looking into a shard must not take a worker's subscription away.
	plan.Source.Spec.Config.Consumer = "shared"
	source, err := buildSource(ctx, plan, logger)
	if err != nil {
		return nil, exit(exitSurroundings, err)
	}
	listing, err := source.Shards(ctx, time.Time{})
	if err != nil {
		return nil, exit(exitSurroundings, explain(err))
	}
	to, err := r.targets(plan, listing)
	if err != nil {
		return nil, exit(exitDocuments, err)
	}
	leases, err := readLeaseStore(ctx, plan)
	if err != nil {
		return nil, exit(exitSurroundings, explain(err))
	}
	defer leases.close()
	dest, _, err := buildDestination(ctx, plan, buildOptions{logger: logger})
	if err != nil {
		return nil, exit(exitSurroundings, err)
	}
	defer func() { err = errors.Join(err, dest.Close()) }()
	done, err = kinetl.Reposition(ctx, kinetl.Repositioning{
		Source: source, Leases: leases.Store, Destination: dest, To: to, Descendants: r.descendants, Reason: r.reason,
		DeleteRows: r.deleteRows, DryRun: r.dryRun,
		Table: func(s kinetl.ShardID) string { return plan.Pipeline.TableFor(s.StreamName()) },
	})
	var finished *kinetl.FinishedError
	if errors.As(err, &finished) {
		return nil, exit(exitDocuments, fmt.Errorf("%w (--descendants)", err))
	}
	var undeletable *kinetl.UndeletableError
	if errors.As(err, &undeletable) {
		return nil, exit(exitDocuments, err)
	}
	return done, classify(err)
}

// targets is the shards to move and where to.
func (r *repositioner) targets(plan config.Plan, listing kinetl.Listing) (map[kinetl.ShardID]kinetl.Position, error) {
	position, isRecord, err := r.position(plan, listing.At)
	if err != nil {
		return nil, err
	}
	if isRecord && len(r.shards) != 1 {
		return nil, errors.New("a sequence number is one shard's: name it with --shard")
	}
	to := map[kinetl.ShardID]kinetl.Position{}
	named := map[string]bool{}
	for _, s := range listing.Shards {
		full := s.ID.StreamName() + "/" + s.ID.Shard
		for _, name := range r.shards {
			if name == s.ID.Shard || name == full {
				if _, twice := to[s.ID]; !twice && named[name] {
					return nil, fmt.Errorf("--shard %s: several streams have a shard of that name: write STREAM/ID", name)
				}
				to[s.ID], named[name] = position, true
			}
		}
		if len(r.shards) == 0 {
			to[s.ID] = position
		}
	}
	for _, name := range r.shards {
		if !named[name] {
			return nil, fmt.Errorf("--shard %s: no stream of the pipeline lists it; see kinetl shards", name)
		}
	}
	return to, nil
}

// position is what --to or the document says. now is the service's clock.
func (r *repositioner) position(plan config.Plan, now time.Time) (p kinetl.Position, isRecord bool, err error) {
	text := r.to
	if r.reset {
		text = plan.Source.Spec.Config.StartPosition
	}
	switch text {
	case "oldest", "earliest":
		return kinetl.Oldest, false, nil
	case "latest":
		return kinetl.Since(now), false, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return kinetl.Since(at), false, nil
	}
	sequence, subText, hasSub := strings.Cut(text, ":")
	sub := uint64(0)
	if hasSub {
		sub, err = strconv.ParseUint(subText, 10, 64)
	}
	if err != nil || sequence == "" || len(sequence) > kinetl.MaxSequenceDigits || slices.ContainsFunc([]byte(sequence), func(c byte) bool { return c < '0' || c > '9' }) {
		return "", false, fmt.Errorf("--to %q is neither oldest, latest, a time such as 2026-11-30T00:00:00Z, nor a sequence number", text)
	}
	return kinetl.At(sequence, sub), true, nil
}
