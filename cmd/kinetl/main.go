// Command kinetl loads Amazon Kinesis Data Streams into tables.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, stable for scripts.
const (
	exitDone         = 0 // done, or drained after a signal
	exitFailed       = 1
	exitDocuments    = 2 // documents or flags
	exitSurroundings = 3 // credentials, network, permissions, a missing service
	exitIncident     = 4 // an open incident
)

// exitError carries the exit code of an error.
type exitError struct {
	code  int
	cause error
}

func (e *exitError) Error() string { return e.cause.Error() }
func (e *exitError) Unwrap() error { return e.cause }

func exit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. The first SIGINT or SIGTERM ends its context, and with it the
// command, in order; the second ends the process, which loses nothing.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			fmt.Fprintln(stderr, "kinetl: stopping: committing what was read; once more to stop at once")
			cancel()
		case <-ctx.Done():
			return
		}
		<-signals
		os.Exit(exitFailed)
	}()
	return execute(ctx, args, stdin, stdout, stderr)
}

func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	text := strings.TrimRight(err.Error(), "\n")
	if text != "" {
		fmt.Fprintln(stderr, "kinetl: "+text)
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	var format, level string
	root := &cobra.Command{
		Use:   "kinetl",
		Short: "Load Amazon Kinesis Data Streams into tables, exactly once",
		Long: `kinetl reads Amazon Kinesis Data Streams into tables. A shard's position is
stored together with its rows, so nothing is lost, repeated or reordered,
whatever stops when.

Exit codes: 0 done or drained, 1 failed, 2 documents or flags, 3 surroundings
(credentials, network, permissions, a missing service), 4 open incident.`,
		Example:           "  kinetl demo\n  kinetl init --stream orders\n  kinetl check pipeline.yaml\n  kinetl run pipeline.yaml",
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return setLogger(cmd, format, level) },
	}
	root.PersistentFlags().StringVar(&format, "log-format", "text", "how logs on stderr are written: text or json")
	root.PersistentFlags().StringVar(&level, "log-level", "info", "least level that is logged: debug, info, warn or error")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit(exitDocuments, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.AddCommand(
		demoCommand(), initCommand(), checkCommand(), runCommand(), statusCommand(), shardsCommand(),
		positionCommand(), incidentsCommand(), queryCommand(), schemaCommand(), versionCommand(),
	)
	return root
}

type loggerKey struct{}

func setLogger(cmd *cobra.Command, format, level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return exit(exitDocuments, fmt.Errorf("--log-level %q is none of debug, info, warn, error", level))
	}
	opts := &slog.HandlerOptions{Level: l}
	var h slog.Handler
	switch format {
	case "text":
		h = slog.NewTextHandler(cmd.ErrOrStderr(), opts)
	case "json":
		h = slog.NewJSONHandler(cmd.ErrOrStderr(), opts)
	default:
		return exit(exitDocuments, fmt.Errorf("--log-format %q is neither text nor json", format))
	}
	cmd.SetContext(context.WithValue(cmd.Context(), loggerKey{}, slog.New(h)))
	return nil
}

// logger is the logger that the flags ask for.
func logger(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return l
	}
	return slog.Default()
}
