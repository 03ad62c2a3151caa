package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"
)

// figures is what one process measured of itself.
type figures struct {
	Records    int64   `json:"records"`
	Seconds    float64 `json:"seconds"`
	CPU        float64 `json:"cpu_seconds"`
	MB         float64 `json:"mb"` // of payload
	Allocs     float64 `json:"allocs_per_record"`
	ResidentMB float64 `json:"resident_mb"` // at the peak
}

// tally is what a side has read and stored.
type tally struct{ records, bytes int64 }

// sides are the programs that are compared, each over all records of one stream.
var sides = map[string]func(context.Context, place, string) (tally, error){
	"sdk":           sdkReader,
	"kinetl-cbor":   kinetlReader("cbor"),
	"kinetl-json":   kinetlReader("json"),
	"usual-arrow":   usualArrow,
	"kinetl-arrow":  kinetlArrow,
	"usual-duckdb":  usualDuckDB,
	"kinetl-duckdb": kinetlDuckDB,
	"duckdb-own":    duckDBOwn,
}

// runSide is the process of one side: it prints its figures. Only the work counts,
// not what a side prepares before it calls begin.
func runSide(ctx context.Context, side, stream, where string) error {
	var p place
	if err := json.Unmarshal([]byte(where), &p); err != nil {
		return err
	}
	f, ok := sides[side]
	if !ok {
		return fmt.Errorf("unknown side %s", side)
	}
	if folder := os.Getenv("BENCH_PROFILES"); folder != "" {
		file, err := os.Create(filepath.Join(folder, side+"-"+stream+".prof"))
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	clock.begin()
	t, err := f(ctx, p, stream)
	if err != nil {
		return fmt.Errorf("%s over %s: %w", side, stream, err)
	}
	out := clock.end()
	if t.records != int64(p.Counts[stream]) {
		return fmt.Errorf("%s over %s: %d records of %d", side, stream, t.records, p.Counts[stream])
	}
	out.Records, out.MB = t.records, float64(t.bytes)/1e6
	out.Allocs /= float64(t.records)
	return json.NewEncoder(os.Stdout).Encode(out)
}

// stopwatch measures from begin to end.
type stopwatch struct {
	at     time.Time
	cpu    float64
	allocs uint64
}

// clock is this process's only one: a side that prepares something begins it again.
var clock stopwatch

func (s *stopwatch) begin() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*s = stopwatch{time.Now(), cpuSeconds(), m.Mallocs}
}

func (s *stopwatch) end() figures {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of oneself: never fails
	return figures{
		Seconds: time.Since(s.at).Seconds(), CPU: cpuSeconds() - s.cpu,
		Allocs: float64(m.Mallocs - s.allocs), ResidentMB: float64(u.Maxrss) / 1024,
	}
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
