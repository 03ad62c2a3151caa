// Command bench compares kinetl with what a competent user would write today: each
// side in a process of its own against one server process, over TLS, several times
// in turns, in records per CPU-second. `make bench` rewrites RESULTS.md and
// results.json.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
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
	return fmt.Errorf("unknown arguments %v", args)
}
