package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/kinesis"
)

func deregisterCommand() *cobra.Command {
	var asJSON bool
	var secrets string
	cmd := &cobra.Command{
		Use:   "deregister FILE...",
		Short: "Remove the fan-out consumers of the pipelines",
		Long: `Removes the consumers that the pipelines of the documents have registered for
enhanced fan-out, whichever worker did it and however long ago: Kinesis bills a
consumer for as long as it is there. A run that is active registers its own again.
Consumers named in consumerArns belong to somebody else and stay.`,
		Example: "  kinetl deregister pipeline.yaml",
		Args:    needFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			plans, err := loadPlans(args, secrets)
			if err != nil {
				return err
			}
			return deregister(cmd.Context(), plans, cmd.OutOrStdout(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.Flags().StringVar(&secrets, "secrets", "", "`folder` with a file per secret; else the environment")
	return cmd
}

func deregister(ctx context.Context, plans []config.Plan, out io.Writer, asJSON bool) error {
	removed := []string{}
	var errs []error
	for _, plan := range plans {
		arns, err := deregisterPlan(ctx, plan)
		removed = append(removed, arns...)
		if err != nil {
			errs = append(errs, fmt.Errorf("pipeline %s: %w", plan.Pipeline.Metadata.Name, err))
		}
	}
	var err error
	if asJSON {
		err = json.NewEncoder(out).Encode(map[string]any{"removed": removed})
	} else {
		for _, arn := range removed {
			_, err = fmt.Fprintln(out, "removed", arn)
		}
		if len(removed) == 0 && len(errs) == 0 {
			_, err = fmt.Fprintln(out, "no consumer of these pipelines is registered")
		}
	}
	return errors.Join(err, exit(exitSurroundings, errors.Join(errs...)))
}

// deregisterPlan removes the consumers of one pipeline. It asks for no fan-out in the
// document: whoever went back to polling is who wants them gone.
func deregisterPlan(ctx context.Context, plan config.Plan) ([]string, error) {
	source, err := buildSource(ctx, plan, nil, func(o *kinesis.Options) { o.ConsumerName = plan.Pipeline.Spec.Application })
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var removed []string
	var errs []error
	for _, g := range source {
		arns, err := g.Deregister(ctx)
		removed = append(removed, arns...)
		var api smithy.APIError
		if errors.As(err, &api) && strings.HasPrefix(api.ErrorCode(), "AccessDenied") {
			err = fmt.Errorf("%w: somebody who may can run\n%s", err, byHand(plan, g))
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// byHand is the line that does the same with the AWS CLI, for each stream that is named.
func byHand(plan config.Plan, g group) string {
	streams, region := g.streams, g.cfg.Region
	if len(streams) == 0 {
		streams = []string{"STREAM"}
	}
	var lines []string
	for _, stream := range streams {
		if !strings.HasPrefix(stream, "arn:") {
			stream = "arn:aws:kinesis:" + region + ":ACCOUNT:stream/" + stream
		}
		lines = append(lines, fmt.Sprintf("  aws kinesis deregister-stream-consumer --region %s --stream-arn %s --consumer-name %s", region, stream, plan.Pipeline.Spec.Application))
	}
	return strings.Join(lines, "\n")
}
