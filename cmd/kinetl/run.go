package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/dest/duckdb"
	"github.com/kinetl/kinetl/httpapi"
	"github.com/kinetl/kinetl/lease"
)

func runCommand() *cobra.Command {
	r := &runner{}
	var until string
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Load streams into tables as documents say",
		Long: `Runs every pipeline of the documents in FILE, which is a file, a folder or - for
stdin. A continuous pipeline runs until it is stopped; a scheduled one stays
resident and reads to the tip at its times. With --once each pipeline reads to
the tip and ends. It waits for what other workers of the application read, and
not for what workers of KCL read.

A signal stops reading, commits what was read and releases the leases; a second
one stops at once. Neither loses or repeats anything.`,
		Example: "  kinetl run pipeline.yaml\n  kinetl run --once pipeline.yaml\n  kinetl run --listen 127.0.0.1:9400 documents/",
		Args:    needFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if until != "" {
				t, err := time.Parse(time.RFC3339, until)
				if err != nil {
					return exit(exitDocuments, fmt.Errorf("--until %q is not a time such as 2026-11-30T00:00:00Z", until))
				}
				r.until, r.once = t, true
			}
			if _, _, err := net.SplitHostPort(r.listen); r.listen != "" && err != nil {
				return exit(exitDocuments, fmt.Errorf("--listen %q is not HOST:PORT", r.listen))
			}
			r.progress = newProgress(cmd.ErrOrStderr())
			r.logger = loggerTo(cmd.Context(), cmd.ErrOrStderr())
			if r.progress.terminal {
				r.logger = loggerTo(cmd.Context(), r.progress)
			} else {
				r.progress.log = r.logger
			}
			return r.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&r.once, "once", false, "end when everything that the streams held at the start is stored")
	f.StringVar(&until, "until", "", "leave records that arrived at this `time` (RFC 3339) or later in the stream, and end")
	f.StringVar(&r.listen, "listen", "", "`address` to serve /healthz, /readyz and /metrics on")
	f.StringVar(&r.secrets, "secrets", "", "`folder` with a file per secret; else the environment")
	f.BoolVar(&r.rewrite, "rewrite", false, "widen columns of tables of any size, which rewrites them; else up to 1 GiB")
	f.BoolVar(&r.deregister, "deregister-on-stop", false, "remove the fan-out consumers when the run ends; of several workers, only the last to stop should")
	f.BoolVar(&r.adopt, "adopt", false, "take over tables that another application has loaded")
	return cmd
}

// needFiles says what is missing when a command gets no documents.
func needFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exit(exitDocuments, fmt.Errorf("name a file or folder of documents; `kinetl init` writes one; see %s --help", cmd.CommandPath()))
	}
	return nil
}

// runner is one run of the command.
type runner struct {
	once    bool
	until   time.Time
	listen  string
	secrets string
	adopt   bool
	rewrite bool

	deregister bool

	logger   *slog.Logger
	progress *progress
	heap     *heapLimit
	api      *httpapi.Server
}

func (r *runner) run(ctx context.Context, files []string) error {
	plans, err := loadPlans(files, r.secrets)
	if err != nil {
		return err
	}
	if len(plans) == 0 {
		return exit(exitDocuments, fmt.Errorf("%s: no document of kind Pipeline: nothing to run", strings.Join(files, ", ")))
	}
	r.heap = limitMemory(plans)
	r.api = httpapi.New()
	stopServing, err := r.serve(ctx)
	if err != nil {
		return err
	}
	stopDrain := context.AfterFunc(ctx, func() {
		r.logger.Info("stopping: committing what was read; a second signal stops at once")
		r.api.Drain()
	})
	defer stopDrain()
	shown, hidden := make(chan struct{}), make(chan struct{})
	go func() { defer close(hidden); r.progress.show(shown) }()

	err = r.runPlans(ctx, plans)
	close(shown)
	<-hidden
	if r.deregister {
		// The run's context has ended; what it leaves behind still costs money.
		err = errors.Join(err, deregister(context.WithoutCancel(ctx), plans, io.Discard, false))
	}
	return errors.Join(err, stopServing())
}

// runPlans runs pipelines side by side. With --once each gets to its end whatever
// becomes of the others; else one that fails ends the program, in order, for whoever
// watches over it to start it again.
func (r *runner) runPlans(ctx context.Context, plans []config.Plan) error {
	group, gctx := errgroup.WithContext(ctx)
	errs := make([]error, len(plans))
	for i, plan := range plans {
		group.Go(func() error {
			errs[i] = r.runPlan(gctx, plan)
			if r.once {
				return nil
			}
			return errs[i]
		})
	}
	_ = group.Wait() // one of errs
	return gravest(errs)
}

// gravest joins errors under the lowest of their exit codes.
func gravest(errs []error) error {
	code := 0
	for _, err := range errs {
		var e *exitError
		if errors.As(err, &e) && (code == 0 || e.code < code) {
			code = e.code
		}
	}
	return exit(code, errors.Join(errs...))
}

// serve answers health and metrics until stop is called, beyond the end of ctx:
// a drain is worth watching.
func (r *runner) serve(ctx context.Context) (stop func() error, err error) {
	if r.listen == "" {
		return func() error { return nil }, nil
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	addr, done, err := r.api.Serve(serving, r.listen)
	if err != nil {
		cancel()
		return nil, exit(exitSurroundings, fmt.Errorf("--listen %s: %w", r.listen, err))
	}
	r.logger.Info("serving health and metrics", "address", addr.String())
	return func() error { cancel(); return <-done }, nil
}

// runPlan runs one pipeline, now or at its times.
func (r *runner) runPlan(ctx context.Context, plan config.Plan) error {
	if plan.Pipeline.Spec.Mode != "scheduled" || r.once {
		return r.runOnce(ctx, plan, r.once)
	}
	for {
		next := plan.Pipeline.NextRun(time.Now())
		r.logger.Info("next run", "pipeline", plan.Pipeline.Metadata.Name, "at", next.Format(time.RFC3339))
		if !sleepUntil(ctx, next) {
			return nil
		}
		// A run that outlasts the next time skips it: never two at once. One that
		// fails is tried again at the next time, as cron would.
		if err := r.runOnce(ctx, plan, true); err != nil {
			r.logger.Error("the run failed", "pipeline", plan.Pipeline.Metadata.Name, "err", err)
		}
	}
}

func (r *runner) runOnce(ctx context.Context, plan config.Plan, once bool) error {
	log := r.logger.With("pipeline", plan.Pipeline.Metadata.Name)
	logEvent, meter := logEvents(log), r.api.Observer(plan.Pipeline.Metadata.Name)
	j, err := build(ctx, plan, buildOptions{
		worker: workerID(), adopt: r.adopt, rewrite: r.rewrite, logger: log,
		observe: func(e kinetl.Event) {
			logEvent(e)
			r.progress.observe(e)
			r.heap.observe(e)
			meter(e)
		},
	})
	if err != nil {
		return err
	}
	j.pipeline.Consumer.Config.Once = once
	j.pipeline.Config.Until = r.until
	if err = j.pipeline.Run(ctx); err != nil {
		err = fmt.Errorf("pipeline %s: %w", j.name, err)
	}
	return classify(errors.Join(err, j.close()))
}

// classify gives an error of a run its exit code.
func classify(err error) error {
	var coded *exitError
	var halted *kinetl.HaltedError
	var api smithy.APIError
	var op *smithy.OperationError
	var network *net.OpError
	var locked *duckdb.LockedError
	var kcl3 *lease.KCL3Error
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case errors.As(err, &halted):
		return exit(exitIncident, err)
	case errors.As(err, &api), errors.As(err, &op), errors.As(err, &network), errors.As(err, &locked), errors.As(err, &kcl3), errors.Is(err, os.ErrPermission):
		return exit(exitSurroundings, explain(err))
	}
	return exit(exitFailed, err)
}

// explain adds to an error of an AWS call what to do about it.
func explain(err error) error {
	var api smithy.APIError
	var network *net.OpError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "ResourceNotFoundException":
		return fmt.Errorf("%w: look at the stream's name, the region and the account", err)
	case errors.As(err, &api) && strings.HasPrefix(api.ErrorCode(), "AccessDenied"):
		return fmt.Errorf("%w: allow it to the identity that is used", err)
	case errors.As(err, &network) && network.Op == "dial":
		return fmt.Errorf("%w: is the endpoint right, and does the service run there?", err)
	}
	return awsconf.Explain(err)
}

// sleepUntil waits for t and reports whether ctx is still alive then.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
