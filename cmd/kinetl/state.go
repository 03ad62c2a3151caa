package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/lease"
)

// The commands of this file look at the lease store only: DuckDB lets no second
// process in (R32), and a look must not disturb a run.

// shardState is a shard as the lease store knows it.
type shardState struct {
	Application string            `json:"application"`
	Stream      string            `json:"stream"`
	Shard       string            `json:"shard"`
	Parents     []string          `json:"parents,omitempty"`
	State       string            `json:"state"` // waiting, reading, free, finished, halted
	Owner       string            `json:"owner,omitempty"`
	Table       string            `json:"table,omitempty"`
	Position    string            `json:"position"`
	SubSequence uint64            `json:"sub_sequence,omitempty"`
	CaughtUp    *time.Time        `json:"caught_up,omitempty"`
	LagSeconds  *float64          `json:"lag_seconds,omitempty"` // since the shard was last known to be read to its tip
	Incidents   []kinetl.Incident `json:"incidents,omitempty"`
}

// readState reads the lease stores of the documents' pipelines, and tells log which
// of them are not there yet.
func readState(ctx context.Context, files []string, secrets string, log io.Writer) ([]shardState, error) {
	set, err := loadResolved(files, secrets)
	if err != nil {
		return nil, err
	}
	out := []shardState{}
	for _, plan := range set.Pipelines() {
		p := plan.Pipeline
		leases, err := readLeases(ctx, plan)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(log, "pipeline %s has not run yet: there is no lease store %s\n", p.Metadata.Name, leasesName(plan))
			continue
		case err != nil:
			return nil, exit(exitSurroundings, fmt.Errorf("pipeline %s: %w", p.Metadata.Name, err))
		}
		out = append(out, states(p.Spec.Application, leases, time.Now())...)
	}
	return out, nil
}

func readLeases(ctx context.Context, plan config.Plan) ([]lease.Lease, error) {
	store, err := readLeaseStore(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer store.close()
	return store.List(ctx)
}

func states(application string, leases []lease.Lease, now time.Time) []shardState {
	open := map[string]bool{}
	for _, l := range leases {
		open[l.Key] = !l.Ended()
	}
	out := make([]shardState, 0, len(leases))
	for _, l := range leases {
		stream, shard := placeOf(l)
		s := shardState{
			Application: application, Stream: stream, Shard: shard, Parents: l.Parents,
			State: "free", Table: l.Sink.Table, Position: l.Checkpoint, SubSequence: l.Sub,
		}
		if !l.Start.IsZero() && lease.IsSentinel(l.Checkpoint) {
			s.Position += " " + l.Start.Format(time.RFC3339)
		}
		if l.Owner != "" && !l.OwnerGone {
			s.State, s.Owner = "reading", l.Owner
		}
		for _, p := range l.Parents {
			if open[lease.Group(l.Key)+p] {
				s.State = "waiting"
			}
		}
		if !l.CaughtUp.IsZero() && !l.Ended() {
			at, lag := l.CaughtUp, now.Sub(l.CaughtUp).Seconds()
			s.CaughtUp, s.LagSeconds = &at, &lag
		}
		s.Incidents = kinetl.OpenIncidents(l)
		switch {
		case l.Ended():
			s.State, s.Owner = "finished", ""
		case len(s.Incidents) > 0 && s.Incidents[0].Halts:
			s.State = "halted"
		}
		out = append(out, s)
	}
	return out
}

// placeOf is the stream and the shard of a lease. A table of one stream may not know
// the stream's name: KCL keeps no more than the shard id in it.
func placeOf(l lease.Lease) (stream, shard string) {
	key, err := lease.ParseKey(l.Key)
	if err != nil {
		return "", l.Key
	}
	if !key.Short() {
		return key.Stream, key.Shard
	}
	arn, _, _ := strings.Cut(l.Stream, "@")
	return arn[strings.LastIndexByte(arn, '/')+1:], key.Shard
}

// stateCommand makes a command that shows what the lease stores say.
func stateCommand(use, short, long, example string, show func(io.Writer, []shardState, bool) error) *cobra.Command {
	var asJSON bool
	var secrets string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: needFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := readState(cmd.Context(), args, secrets, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), all, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.Flags().StringVar(&secrets, "secrets", "", "`folder` with a file per secret; else the environment")
	return cmd
}

func statusCommand() *cobra.Command {
	return stateCommand("status FILE...", "Say how far each pipeline is", `Says how far each pipeline of the documents is: shards by state, workers, and how
long ago the last of the shards was known to be read to its tip. It looks at the
lease store only, so it works beside a run.`, "  kinetl status pipeline.yaml", showStatus)
}

func shardsCommand() *cobra.Command {
	return stateCommand("shards FILE...", "List shards: lineage, state, owner, position, lag", `Lists the shards that the lease stores know, and the state of each:

  waiting   a parent is not finished
  free      no worker holds it
  reading   OWNER reads it
  halted    an incident is open that halts it: see incidents list
  finished  the shard is closed, and all of it is stored`, "  kinetl shards pipeline.yaml\n  kinetl shards --json pipeline.yaml", showShards)
}

func incidentsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "incidents", Short: "Look at conditions that need a person, and resolve them", Example: "  kinetl incidents list pipeline.yaml", RunE: needSubcommand}
	cmd.AddCommand(stateCommand("list FILE...", "List open incidents", `Lists the open incidents. One that halts keeps its shard and the shards that
descend from it unread; everything else goes on.`, "  kinetl incidents list pipeline.yaml", showIncidents))
	cmd.AddCommand(resolveCommand())
	return cmd
}

// status is one pipeline in short.
type status struct {
	Application string         `json:"application"`
	Shards      map[string]int `json:"shards"` // by state
	Workers     int            `json:"workers"`
	LagSeconds  *float64       `json:"lag_seconds"` // of the shard that is furthest behind; null: some shard was never caught up
	Incidents   int            `json:"incidents"`
}

func summarize(all []shardState) []status {
	out := []status{}
	workers := map[string]bool{}
	incidents := map[string]bool{}
	for i, s := range all {
		if i == 0 || all[i-1].Application != s.Application {
			zero := 0.0
			out = append(out, status{Application: s.Application, Shards: map[string]int{}, LagSeconds: &zero})
			clear(workers)
			clear(incidents)
		}
		st := &out[len(out)-1]
		st.Shards[s.State]++
		if s.Owner != "" {
			workers[s.Owner] = true
			st.Workers = len(workers)
		}
		for _, inc := range s.Incidents { // a notice may be on several leases
			incidents[inc.ID] = true
		}
		st.Incidents = len(incidents)
		switch {
		case s.State == "finished" || st.LagSeconds == nil:
		case s.LagSeconds == nil:
			st.LagSeconds = nil
		default:
			lag := max(*st.LagSeconds, *s.LagSeconds)
			st.LagSeconds = &lag
		}
	}
	return out
}

func showStatus(out io.Writer, all []shardState, asJSON bool) error {
	list := summarize(all)
	if asJSON {
		return json.NewEncoder(out).Encode(list)
	}
	return table(out, "APPLICATION\tREADING\tFREE\tWAITING\tFINISHED\tHALTED\tWORKERS\tBEHIND", func(w io.Writer) {
		for _, s := range list {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", s.Application, s.Shards["reading"], s.Shards["free"],
				s.Shards["waiting"], s.Shards["finished"], s.Shards["halted"], s.Workers, behind(s.LagSeconds))
		}
	})
}

func showShards(out io.Writer, all []shardState, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(all)
	}
	return table(out, "STREAM\tSHARD\tPARENTS\tSTATE\tOWNER\tPOSITION\tBEHIND", func(w io.Writer) {
		for _, s := range all {
			lag := behind(s.LagSeconds)
			if s.State == "finished" {
				lag = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Stream, s.Shard, dash(strings.Join(s.Parents, "+")), s.State, dash(s.Owner), place(s), lag)
		}
	})
}

func showPositions(out io.Writer, all []shardState, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(all)
	}
	return table(out, "STREAM\tSHARD\tTABLE\tPOSITION", func(w io.Writer) {
		for _, s := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Stream, s.Shard, dash(s.Table), place(s))
		}
	})
}

func showIncidents(out io.Writer, all []shardState, asJSON bool) error {
	incidents := openIncidents(all)
	if asJSON {
		return json.NewEncoder(out).Encode(incidents)
	}
	if len(incidents) == 0 {
		fmt.Fprintln(out, "no open incidents")
		return nil
	}
	return table(out, "ID\tKIND\tHALTS\tSHARD\tSINCE\tWHAT", func(w io.Writer) {
		for _, i := range incidents {
			what, halts := strings.TrimPrefix(i.Detail, i.Shard+": "), "no"
			if i.Halts {
				halts = "yes"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", i.ID, i.Kind, halts, i.Shard, i.At.Format(time.RFC3339), what)
		}
	})
}

// openIncidents is the incidents of all applications, those that halt first. A notice
// may be on the leases of several shards and is one incident all the same.
func openIncidents(all []shardState) []kinetl.Incident {
	type key struct{ application, id string }
	seen := map[key]bool{}
	out := []kinetl.Incident{}
	for _, halts := range []bool{true, false} {
		for _, s := range all {
			for _, inc := range s.Incidents {
				if k := (key{s.Application, inc.ID}); inc.Halts == halts && !seen[k] {
					seen[k] = true
					out = append(out, inc)
				}
			}
		}
	}
	return out
}

// table prints aligned columns under a heading.
func table(out io.Writer, heading string, rows func(io.Writer)) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	rows(w)
	return w.Flush()
}

func place(s shardState) string {
	if s.SubSequence > 0 {
		return fmt.Sprintf("%s.%d", s.Position, s.SubSequence)
	}
	return s.Position
}

func behind(lag *float64) string {
	if lag == nil {
		return "never caught up"
	}
	return time.Duration(*lag * float64(time.Second)).Round(time.Second).String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
