package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// markdown is RESULTS.md but for the notes below its mark, which people write.
func markdown(results []result, p place, at time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Results

Written by %[1]smake bench%[1]s on %[2]s: %[3]s, %[4]d cores, %[5]s, Go %[6]s.

A server process (kinesistest over TLS, limits off, %[7]d shards) feeds one side at a
time; each side is a process of its own, reads with pacing off, and runs in turns with
the other. A ratio is kinetl's records per CPU-second over the other side's, both
sides' whole processes counted; of duckdb_vs_own_rate, where DuckDB keeps all cores
busy on both sides, it is records per second. Median of the rounds, and their range.

| comparison | ratio | range | bar | records/CPU-s | other side | MB/s | allocs/record | MB resident |
|---|---|---|---|---|---|---|---|---|
`, "`", at.UTC().Format("2006-01-02"), cpuModel(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH, strings.TrimPrefix(runtime.Version(), "go"), shards)
	for _, r := range results {
		ours := r.Ours[len(r.Ours)/2]
		fmt.Fprintf(&b, "| %s | %.2f | %.2f to %.2f | %g | %s | %s | %.0f | %.3f | %.0f |\n", r.Name, r.Ratio.Median, r.Ratio.Min, r.Ratio.Max, r.Bar,
			thousands(median(r.Ours, figures.efficiency)), thousands(median(r.Theirs, figures.efficiency)), ours.MB/ours.Seconds, ours.Allocs, ours.ResidentMB)
	}
	fmt.Fprintf(&b, "\nWhat is compared:\n\n")
	seen := map[string]bool{}
	for _, r := range results {
		if name := r.Name[:strings.LastIndexByte(r.Name, '_')]; !seen[name] {
			seen[name] = true
			fmt.Fprintf(&b, "- %s: %s\n", name, r.What)
		}
	}
	fmt.Fprintf(&b, "\nRecords: %d of 256 bytes with eight fields, %d of 1 KB with fifteen leaves, lists and escapes. Dependencies:\n%s", p.Counts["256"], p.Counts["1k"], dependencies())
	return b.String() + notes()
}

func median(all []figures, f func(figures) float64) float64 {
	var values []float64
	for _, x := range all {
		values = append(values, f(x))
	}
	return spreadOf(values).Median
}

func thousands(n float64) string { return fmt.Sprintf("%.0f k", n/1000) }

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func dependencies() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var out string
	for _, d := range info.Deps {
		switch d.Path {
		case "github.com/aws/aws-sdk-go-v2/service/kinesis", "github.com/apache/arrow-go/v18", "github.com/duckdb/duckdb-go/v2":
			out += fmt.Sprintf("%s %s\n", d.Path, d.Version)
		}
	}
	return out
}

const notesMark = "\n## Notes\n"

// notes keeps what people wrote below the mark.
func notes() string {
	text, err := os.ReadFile("bench/RESULTS.md")
	if err != nil {
		return notesMark
	}
	if _, after, ok := strings.Cut(string(text), notesMark); ok {
		return notesMark + after
	}
	return notesMark
}
