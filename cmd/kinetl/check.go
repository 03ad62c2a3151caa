package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/dest/duckdb"
	"github.com/kinetl/kinetl/dest/postgres"
)

func checkCommand() *cobra.Command {
	c := &checker{}
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check documents, and that what they name can be reached",
		Long: `Checks the documents in FILE, which is a file, a folder or - for stdin, and tells
every fault at once. Then it looks whether the streams are there and may be
listed, whether the database may be written, and whether incidents are open. It
reads and writes no data. With --offline it checks the documents only, and needs
neither secrets nor network.`,
		Example: "  kinetl check pipeline.yaml\n  kinetl check --offline examples/",
		Args:    needFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := c.run(cmd.Context(), args)
			if showErr := c.show(cmd.OutOrStdout(), cmd.ErrOrStderr(), err); showErr != nil {
				return showErr
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&c.offline, "offline", false, "check the documents only")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON document")
	cmd.Flags().StringVar(&c.secrets, "secrets", "", "`folder` with a file per secret; else the environment")
	return cmd
}

// checker is one run of the command.
type checker struct {
	offline bool
	asJSON  bool
	secrets string
	results []result
}

// result is one thing that was looked at.
type result struct {
	Pipeline string `json:"pipeline"`
	What     string `json:"what"`
	OK       bool   `json:"ok"`
	Detail   string `json:"detail"`
	code     int
}

func (c *checker) run(ctx context.Context, files []string) error {
	if c.offline {
		set, err := config.Load(files...)
		if err != nil {
			return exit(exitDocuments, err)
		}
		for _, plan := range set.Pipelines() {
			c.note(plan, "documents", exitDocuments, nil, "valid")
		}
		return nil
	}
	plans, err := loadPlans(files, c.secrets)
	if err != nil {
		return err
	}
	for _, plan := range plans {
		c.note(plan, "documents", exitDocuments, nil, "valid")
		c.checkStreams(ctx, plan)
		c.checkDestination(ctx, plan)
		c.checkLeases(ctx, plan)
	}
	return c.verdict()
}

func (c *checker) note(plan config.Plan, what string, code int, err error, detail string) {
	r := result{Pipeline: plan.Pipeline.Metadata.Name, What: what, OK: err == nil, Detail: detail, code: code}
	if err != nil {
		r.Detail = err.Error()
	}
	c.results = append(c.results, r)
}

// checkStreams lists shards, which needs the same permissions on a stream as
// reading does but for GetShardIterator and GetRecords, and reads no record.
func (c *checker) checkStreams(ctx context.Context, plan config.Plan) {
	source, err := buildSource(ctx, plan, nil)
	if err != nil {
		c.note(plan, "AWS configuration", exitSurroundings, err, "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	listing, err := source.Shards(ctx, time.Time{})
	streams, open := map[string]bool{}, 0
	for _, s := range listing.Shards {
		streams[s.ID.Stream] = true
		if !s.Closed {
			open++
		}
	}
	if err == nil && len(streams) == 0 {
		err = errors.New("no stream matches: nothing would be read")
	}
	c.note(plan, "streams", exitSurroundings, explain(err), fmt.Sprintf("%d stream(s), %d shard(s), %d of them open", len(streams), len(listing.Shards), open))
	if err == nil && plan.Source.Spec.Config.Consumer == "fan-out" {
		c.checkFanOut(ctx, plan, source)
	}
}

// checkFanOut says what enhanced fan-out would cost, and whether a stream has room
// for another consumer.
func (c *checker) checkFanOut(ctx context.Context, plan config.Plan, source sources) {
	for _, g := range source {
		quotas, err := g.FanOutQuotas(ctx)
		if err != nil {
			c.note(plan, "fan-out", exitSurroundings, explain(err), "")
		}
		for _, q := range quotas {
			c.note(plan, "fan-out", exitSurroundings, q.Err(), q.String())
		}
	}
}

// checkDestination looks at the database without making or changing anything in it.
func (c *checker) checkDestination(ctx context.Context, plan config.Plan) {
	switch d := plan.Destination.Spec.Config.(type) {
	case *config.DuckDB:
		detail, err := duckdb.Check(d.Path)
		c.note(plan, "database "+d.Path, exitSurroundings, err, detail)
	case *config.Postgres:
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		detail, err := postgres.Check(ctx, postgresOptions(plan, buildOptions{}))
		c.note(plan, "database", exitSurroundings, err, detail)
	}
}

// checkLeases looks for open incidents, if the pipeline has run before.
func (c *checker) checkLeases(ctx context.Context, plan config.Plan) {
	what := "leases " + leasesName(plan)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	leases, err := readLeases(ctx, plan)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		var can error
		if spec := plan.Pipeline.Spec.Leases; spec.Store == "sqlite" {
			can = writable(filepath.Dir(spec.Path))
		}
		c.note(plan, what, exitSurroundings, can, "will be made: the pipeline has not run yet")
		return
	case err != nil:
		c.note(plan, what, exitSurroundings, explain(err), "")
		return
	}
	incidents := len(kinetl.AllIncidents(leases))
	c.note(plan, what, exitSurroundings, nil, fmt.Sprintf("%d shard(s)", len(leases)))
	if incidents > 0 {
		c.note(plan, "incidents", exitIncident, fmt.Errorf("%d open: kinetl incidents list shows them", incidents), "")
	}
}

// writable reports whether files can be made in a folder, or in the nearest one
// above it that exists.
func writable(folder string) error {
	for {
		info, err := os.Stat(folder)
		switch {
		case errors.Is(err, os.ErrNotExist) && filepath.Dir(folder) != folder:
			folder = filepath.Dir(folder)
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a folder", folder)
		}
		return duckdb.Writable(folder)
	}
}

// verdict is the error of the gravest result.
func (c *checker) verdict() error {
	code, failed := 0, 0
	for _, r := range c.results {
		if !r.OK {
			failed++
			if code == 0 || r.code < code {
				code = r.code
			}
		}
	}
	if failed == 0 {
		return nil
	}
	return exit(code, fmt.Errorf("%d of %d checks failed", failed, len(c.results)))
}

func (c *checker) show(out, log io.Writer, err error) error {
	var faults config.Faults
	isFaults := errors.As(err, &faults)
	if c.asJSON {
		doc := struct {
			OK     bool          `json:"ok"`
			Faults config.Faults `json:"faults"`
			Checks []result      `json:"checks"`
		}{err == nil, faults, c.results}
		return json.NewEncoder(out).Encode(doc)
	}
	for _, r := range c.results {
		word := "ok  "
		if !r.OK {
			word = "FAIL"
		}
		fmt.Fprintf(out, "%s  %s: %s: %s\n", word, r.Pipeline, r.What, r.Detail)
	}
	if !isFaults && len(c.results) == 0 && err == nil {
		fmt.Fprintln(log, "no pipeline in the documents")
	}
	return nil
}
