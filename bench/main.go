// Command bench compares kinetl with what a competent user would write today: each
// side in a process of its own against one server process, over TLS, several times
// in turns, in records per CPU-second. `make bench` rewrites RESULTS.md and
// results.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/kinetl/kinetl"
)

func main() {
	rounds := flag.Int("rounds", 3, "how often each side of each comparison runs")
	megabytes := flag.Int("megabytes", 256, "payload bytes that a side reads, in MB")
	only := flag.String("only", "", "run only comparisons whose name contains this")
	out := flag.String("out", "bench", "folder for RESULTS.md and results.json; empty: print only")
	flag.Parse()
	if err := dispatch(context.Background(), *rounds, *megabytes, *only, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// dispatch is the runner, or with arguments one of the processes that it starts.
func dispatch(ctx context.Context, rounds, megabytes int, only, out string, args []string) error {
	switch {
	case len(args) == 0:
		return runAll(ctx, rounds, megabytes, only, out)
	case args[0] == "serve":
		return serve(megabytes)
	case args[0] == "side" && len(args) == 4:
		return runSide(ctx, args[1], args[2], args[3])
	}
	return measure(ctx, args)
}

// measure prints what is no comparison: how the program does by itself.
func measure(ctx context.Context, args []string) error {
	switch args[0] {
	case "idle":
		if len(args) == 1 {
			return errors.Join(idle(ctx, 1000), idle(ctx, 2500))
		}
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("number of shards: %w", err)
		}
		return idle(ctx, n)
	case "latency":
		return errors.Join(
			latency(ctx, "at the default settings", kinetl.Batch{}),
			latency(ctx, "with batch.age: 250ms", kinetl.Batch{Age: 250 * time.Millisecond}))
	case "backlog":
		return backlog(ctx, 20_000_000, 64)
	}
	return fmt.Errorf("unknown arguments %v", args)
}
