package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// comparison is kinetl's side beside another, in records per CPU-second, or where
// both sides keep both cores busy with the same engine, per second.
type comparison struct {
	name, ours, theirs string
	bar                float64 // what the ratio should reach
	what               string
	perSecond          bool
}

var comparisons = []comparison{
	{"reader_cbor_vs_sdk", "kinetl-cbor", "sdk", 5, "reading alone, CBOR, beside a plain loop over aws-sdk-go-v2", false},
	{"reader_json_vs_sdk", "kinetl-json", "sdk", 3, "reading alone, JSON, beside the same loop", false},
	{"arrow_vs_usual", "kinetl-arrow", "usual-arrow", 8, "stream to Arrow batches, beside that loop with encoding/json into a map and Arrow builders", false},
	{"duckdb_vs_usual", "kinetl-duckdb", "usual-duckdb", 3, "stream to DuckDB rows on disk, beside that loop with encoding/json into a map and DuckDB's appender", false},
	{"duckdb_vs_own_rate", "kinetl-duckdb", "duckdb-own", 0.7, "the same beside the rate at which DuckDB takes the same batches through the same destination, 100,000 rows a transaction", true},
}

// result is one comparison over one kind of record.
type result struct {
	Name   string    `json:"name"`
	What   string    `json:"what"`
	Bar    float64   `json:"bar"`
	Ratio  spread    `json:"ratio"`
	Ours   []figures `json:"ours"`
	Theirs []figures `json:"theirs"`
}

type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1]}
}

func runAll(ctx context.Context, rounds, megabytes int, only, out string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := exec.CommandContext(ctx, self, "-megabytes", fmt.Sprint(megabytes), "serve")
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { _ = stdin.Close(); _ = server.Wait() }() // it has nothing to say any more
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the server did not start: %w", err)
	}
	var p place
	if err := json.Unmarshal([]byte(line), &p); err != nil {
		return err
	}
	r := &runner{self: self, where: strings.TrimSpace(line), place: p, rounds: rounds}
	var results []result
	for _, c := range comparisons {
		for _, stream := range []string{"256", "1k"} {
			if !strings.Contains(c.name+"_"+stream, only) {
				continue
			}
			res, err := r.compare(ctx, c, stream)
			if err != nil {
				return err
			}
			results = append(results, res)
		}
	}
	return report(results, p, out)
}

type runner struct {
	self, where string
	place       place
	rounds      int
}

// compare runs both sides in turns.
func (r *runner) compare(ctx context.Context, c comparison, stream string) (result, error) {
	out := result{Name: c.name + "_" + stream, What: c.what, Bar: c.bar}
	var ratios []float64
	for range r.rounds {
		ours, err := r.side(ctx, c.ours, stream)
		if err != nil {
			return out, err
		}
		theirs, err := r.side(ctx, c.theirs, stream)
		if err != nil {
			return out, err
		}
		out.Ours, out.Theirs = append(out.Ours, ours), append(out.Theirs, theirs)
		if c.perSecond {
			ratios = append(ratios, ours.rate()/theirs.rate())
		} else {
			ratios = append(ratios, ours.efficiency()/theirs.efficiency())
		}
	}
	out.Ratio = spreadOf(ratios)
	fmt.Printf("%-26s %6.2f  (%.2f to %.2f, bar %g)\n", out.Name, out.Ratio.Median, out.Ratio.Min, out.Ratio.Max, c.bar)
	return out, nil
}

func (f figures) efficiency() float64 { return float64(f.Records) / f.CPU }
func (f figures) rate() float64       { return float64(f.Records) / f.Seconds }

func (r *runner) side(ctx context.Context, side, stream string) (figures, error) {
	cmd := exec.CommandContext(ctx, r.self, "side", side, stream, r.where)
	cmd.Env = append(os.Environ(), "AWS_CA_BUNDLE="+r.place.Bundle)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return figures{}, fmt.Errorf("side %s: %w: %s", side, err, stderr.String())
	}
	var f figures
	return f, json.Unmarshal(text, &f)
}

// report prints nothing more; it writes the two files.
func report(results []result, p place, out string) error {
	if out == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out+"/results.json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(out+"/RESULTS.md", []byte(markdown(results, p, time.Now())), 0o644)
}
