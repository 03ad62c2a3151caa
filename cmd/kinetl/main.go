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
	exitSurroundings = 3 // credentials, network, permissions, a missing service, what another program holds
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
	code := exitFailed
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	text := strings.TrimRight(err.Error(), "\n")
	if format, _ := root.PersistentFlags().GetString("log-format"); format == "json" {
		slog.New(slog.NewJSONHandler(stderr, nil)).Error(text, "exit_code", code)
	} else if text != "" {
		fmt.Fprintln(stderr, "kinetl: "+text)
	}
	return code
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
(credentials, network, permissions, a missing service, a file or leases that
another program holds), 4 open incident.`,
		Example:           "  kinetl demo\n  kinetl init --stream orders\n  kinetl check pipeline.yaml\n  kinetl run pipeline.yaml",
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              cobra.ArbitraryArgs,
		RunE:              needSubcommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return setLogger(cmd, format, level) },
	}
	// A command that only groups others is not called by itself.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	root.PersistentFlags().StringVar(&format, "log-format", "text", "how logs on stderr are written: `text` or json")
	root.PersistentFlags().StringVar(&level, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit(exitDocuments, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.AddCommand(
		demoCommand(), initCommand(), checkCommand(), runCommand(), statusCommand(), shardsCommand(),
		positionCommand(), incidentsCommand(), queryCommand(), schemaCommand(), versionCommand(),
		emulatorCommand(), putCommand(), tailCommand(), deregisterCommand(), importCommand(),
	)
	return root
}

// needSubcommand runs a command that only groups others: alone it shows them, and
// with a word that is none of them it says so.
func needSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(": did you mean %s?", strings.Join(near, " or "))
	}
	return exit(exitDocuments, fmt.Errorf("%s; see %s --help", text, cmd.CommandPath()))
}

// argCount asks for this many arguments.
func argCount(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return exit(exitDocuments, fmt.Errorf("got %d argument(s); usage: %s", len(args), cmd.UseLine()))
		}
		return nil
	}
}

type loggerKey struct{}

// setLogger makes the logger that the flags ask for.
func setLogger(cmd *cobra.Command, format, level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return exit(exitDocuments, fmt.Errorf("--log-level %q is none of debug, info, warn, error", level))
	}
	opts := &slog.HandlerOptions{Level: l}
	var to func(io.Writer) *slog.Logger
	switch format {
	case "text":
		to = func(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, opts)) }
	case "json":
		to = func(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, opts)) }
	default:
		return exit(exitDocuments, fmt.Errorf("--log-format %q is neither text nor json", format))
	}
	cmd.SetContext(context.WithValue(cmd.Context(), loggerKey{}, to))
	return nil
}

// loggerTo is the logger that the flags ask for, writing to w.
func loggerTo(ctx context.Context, w io.Writer) *slog.Logger {
	return ctx.Value(loggerKey{}).(func(io.Writer) *slog.Logger)(w)
}
