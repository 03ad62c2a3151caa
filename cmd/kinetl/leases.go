package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/sqlitelease"
)

// leaseStore is a pipeline's lease store, open.
type leaseStore struct {
	lease.Store
	// watch looks for KCL 3, which assigns leases by a leader of its own; nil where there
	// can be none.
	watch func(context.Context, time.Time, []lease.Lease) (lease.Verdict, error)
	close func() error
}

// openLeases opens the store for a worker, making it when it is absent.
func openLeases(ctx context.Context, plan config.Plan, worker string, logger *slog.Logger) (leaseStore, error) {
	spec := plan.Pipeline.Spec.Leases
	if spec.Store == "sqlite" {
		s, err := sqlitelease.Open(spec.Path, worker)
		if err != nil {
			return leaseStore{}, err
		}
		return leaseStore{Store: s, close: s.Close}, nil
	}
	opts, err := dynamoOptions(ctx, plan)
	if err != nil {
		return leaseStore{}, err
	}
	opts.Progress = func(text string) { logger.Info(text) }
	opts.Unreadable = func(key, why string) {
		logger.Error("a lease can't be read: its shard and those that descend from it wait", "lease", key, "why", why)
	}
	s, err := dynamolease.Open(ctx, opts)
	if err != nil {
		return leaseStore{}, err
	}
	return leaseStore{Store: s, watch: (&dynamolease.Watch{Store: s}).Look, close: func() error { return nil }}, nil
}

// readLeaseStore opens the store to look at or to resolve in. It makes nothing:
// without a store the error is fs.ErrNotExist.
func readLeaseStore(ctx context.Context, plan config.Plan) (leaseStore, error) {
	spec := plan.Pipeline.Spec.Leases
	if spec.Store == "sqlite" {
		s, err := sqlitelease.OpenReader(spec.Path)
		if err != nil {
			return leaseStore{}, err
		}
		return leaseStore{Store: s, close: s.Close}, nil
	}
	opts, err := dynamoOptions(ctx, plan)
	if err != nil {
		return leaseStore{}, err
	}
	s, err := dynamolease.OpenReader(ctx, opts)
	if err != nil {
		return leaseStore{}, err
	}
	return leaseStore{Store: s, close: func() error { return nil }}, nil
}

func dynamoOptions(ctx context.Context, plan config.Plan) (dynamolease.Options, error) {
	cfg, err := awsconf.Load(ctx, serviceSettings(plan.LeaseService()))
	if err != nil {
		return dynamolease.Options{}, fmt.Errorf("leases in DynamoDB: %w", err)
	}
	return dynamolease.Options{
		AWS: cfg, Table: plan.Pipeline.Spec.Leases.Table, Failover: plan.Pipeline.Spec.Leases.Failover,
	}, nil
}

// leasesName is how a pipeline's lease store is called in messages.
func leasesName(plan config.Plan) string {
	if spec := plan.Pipeline.Spec.Leases; spec.Store == "dynamodb" {
		return "DynamoDB table " + spec.Table
	}
	return plan.Pipeline.Spec.Leases.Path
}

// serviceSettings is how a service is reached.
func serviceSettings(s config.Service) awsconf.Settings {
	return awsconf.Settings{
		Region: s.Region, Endpoint: s.Endpoint, Profile: s.Profile,
		AccessKeyID: s.AccessKeyID.Reveal(), SecretAccessKey: s.SecretAccessKey.Reveal(),
		Role: s.Role.ARN, ExternalID: s.Role.ExternalID,
	}
}
