package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/config"
)

func resolveCommand() *cobra.Command {
	r := &resolver{}
	cmd := &cobra.Command{
		Use:   "resolve FILE... ID",
		Short: "Close an open incident",
		Long: `Closes the incident ID, as incidents list shows it. Whether a run is active or not:
a worker that holds the shard takes it up anew within seconds.

  column_capped  is closed; the next value that does not fit opens it again
  undecodable    is closed, and the record is read again: say undecodable:
                 dead_letter in the document or mend the record first
  expired        needs --from oldest, latest or a time: reading goes on there, and
                 _kinetl_gaps keeps what was stepped over
  checkpoint     goes on where the table stands, or with --from there
  gone           the stream is no more: --from oldest gives up what was not read of it,
  other_stream   and deletes its leases

An incident of another kind says what to do instead; once that is done, the next
run finds out by itself.`,
		Example: "  kinetl incidents resolve pipeline.yaml 3f9a1c2b4d5e\n  kinetl incidents resolve --from oldest pipeline.yaml 3f9a1c2b4d5e",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit(exitDocuments, fmt.Errorf("name the documents and the incident's id, which `kinetl incidents list` shows; see %s --help", cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args[:len(args)-1], args[len(args)-1], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&r.from, "from", "", "give up what can't be read, and go on at `oldest`, latest or a time (RFC 3339)")
	cmd.Flags().BoolVar(&r.acceptGap, "accept-gap", false, "the same as --from oldest")
	cmd.MarkFlagsMutuallyExclusive("from", "accept-gap")
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print one JSON document")
	cmd.Flags().StringVar(&r.secrets, "secrets", "", "`folder` with a file per secret; else the environment")
	return cmd
}

// resolver is one run of the command.
type resolver struct {
	acceptGap, asJSON bool
	from, secrets     string
}

// resolution is what the command prints.
type resolution struct {
	Application string          `json:"application"`
	Incident    kinetl.Incident `json:"incident"`
	Workers     []string        `json:"workers"` // that hold its shards
	Next        string          `json:"next"`    // what will happen
}

func (r *resolver) run(ctx context.Context, files []string, id string, out io.Writer) error {
	if err := r.checkFrom(); err != nil {
		return err
	}
	set, err := loadResolved(files, r.secrets)
	if err != nil {
		return err
	}
	open := []kinetl.Incident{}
	for _, plan := range set.Pipelines() {
		done, err := r.resolve(ctx, plan, id)
		var unknown *kinetl.UnknownIncidentError
		var refused *kinetl.UnresolvableError
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has not run yet
		case errors.As(err, &unknown):
			open = append(open, unknown.Open...)
		case errors.As(err, &refused):
			return exit(exitDocuments, fmt.Errorf("pipeline %s: %w", plan.Pipeline.Metadata.Name, err))
		case err != nil:
			return exit(exitSurroundings, fmt.Errorf("pipeline %s: %w", plan.Pipeline.Metadata.Name, err))
		default:
			return r.show(out, *done)
		}
	}
	return exit(exitDocuments, fmt.Errorf("no incident %s is open%s", id, nearMatches(id, open)))
}

func (r *resolver) resolve(ctx context.Context, plan config.Plan, id string) (*resolution, error) {
	p := plan.Pipeline
	store, err := readLeaseStore(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer store.close()
	from, err := r.position(ctx, plan)
	if err != nil {
		return nil, err
	}
	done, err := kinetl.Resolve(ctx, store, id, kinetl.Resolution{From: from})
	if err != nil {
		return nil, err
	}
	out := &resolution{Application: p.Spec.Application, Incident: done.Incident, Workers: []string{}}
	for _, l := range done.Leases {
		if l.Owner != "" && !l.OwnerGone {
			out.Workers = append(out.Workers, l.Owner)
		}
	}
	out.Next = next(done.Incident, from, p.Spec.Undecodable == "fail", len(out.Workers) > 0)
	return out, nil
}

// position is where reading is to go on; empty: nothing is given up. The latest record
// is the instant of a listing that is made now, by the service's clock.
func (r *resolver) position(ctx context.Context, plan config.Plan) (kinetl.Position, error) {
	switch {
	case r.acceptGap, r.from == "oldest":
		return kinetl.Oldest, nil
	case r.from == "":
		return "", nil
	case r.from == "latest":
		source, err := buildSource(ctx, plan, nil)
		if err != nil {
			return "", err
		}
		listing, err := source.Shards(ctx, time.Time{})
		if err != nil {
			return "", explain(err)
		}
		return kinetl.Since(listing.At), nil
	}
	at, err := time.Parse(time.RFC3339, r.from)
	return kinetl.Since(at), err
}

// checkFrom refuses what --from does not take, before anything is looked at.
func (r *resolver) checkFrom() error {
	if _, err := time.Parse(time.RFC3339, r.from); err != nil && r.from != "" && r.from != "oldest" && r.from != "latest" {
		return exit(exitDocuments, fmt.Errorf("--from %q is neither oldest, latest nor a time such as 2026-11-30T00:00:00Z", r.from))
	}
	return nil
}

// next says what a resolution leads to.
func next(inc kinetl.Incident, from kinetl.Position, failing, running bool) string {
	who := "the next run"
	if running {
		who = "the run that is active, within seconds,"
	}
	switch inc.Kind {
	case kinetl.IncidentColumnCapped:
		return "what did not fit stays among the dead letters; the next value that does not fit opens the incident again"
	case kinetl.IncidentUndecodable:
		text := fmt.Sprintf("%s reads %s again from its stored position and meets record %s again", who, inc.Shard, inc.Position)
		switch {
		case failing:
			text += ", where it halts again: let the document say undecodable: dead_letter first"
			if running {
				text += ", and start the run anew"
			}
		case running:
			text += "; a run that was started with undecodable: fail must be started anew to make it a dead letter"
		default:
			text += ", which becomes a dead letter"
		}
		return text
	}
	switch at, ok := from.Instant(); {
	case from == "":
		return fmt.Sprintf("%s goes on in %s where its table stands", who, inc.Shard)
	case inc.Kind == kinetl.IncidentGone, inc.Kind == kinetl.IncidentOtherStream:
		return "the leases of the stream that is no more are deleted; what was not read of it is lost"
	case ok:
		return fmt.Sprintf("%s goes on in %s at the first record since %s; the first rows after the gap record it in _kinetl_gaps, from position %s", who, inc.Shard, at.UTC().Format(time.RFC3339), inc.Position)
	}
	return fmt.Sprintf("%s goes on in %s at the oldest record that it still has; the first rows after the gap record it in _kinetl_gaps, from position %s", who, inc.Shard, inc.Position)
}

func (r *resolver) show(out io.Writer, done resolution) error {
	if r.asJSON {
		return json.NewEncoder(out).Encode(done)
	}
	_, err := fmt.Fprintf(out, "resolved incident %s (%s) of %s\nnext: %s\n", done.Incident.ID, done.Incident.Kind, done.Incident.Shard, done.Next)
	return err
}

// nearMatches names the open incidents whose ids look like the one given, or else all.
func nearMatches(id string, open []kinetl.Incident) string {
	var near, all []string
	for _, inc := range open {
		all = append(all, inc.ID)
		if looksLike(id, inc.ID) {
			near = append(near, inc.ID)
		}
	}
	switch {
	case len(all) == 0:
		return ", nor is any other"
	case len(near) > 0:
		return ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return ": open are " + strings.Join(all, ", ")
}

// looksLike: one begins with the other, or they differ in a few places.
func looksLike(a, b string) bool {
	a = strings.ToLower(a)
	if len(a) >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
		return true
	}
	differ := 0
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			differ++
		}
	}
	return len(a) == len(b) && differ <= 3
}
