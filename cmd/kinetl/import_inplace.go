package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/importer"
)

// checkInPlace refuses flags and documents that do not fit --in-place.
func (im *importing) checkInPlace(leases config.Leases) error {
	switch {
	case !im.inPlace:
		return errors.New("--backup goes with --in-place: without it the other system's table stays as it is")
	case im.backup == "" && !im.dryRun:
		return errors.New("--in-place deletes the other system's items: name a file for them with --backup")
	case im.from != "openflow":
		return fmt.Errorf("--in-place is for openflow; without it kinetl import leaves the table of %s as it is, and writes another", im.from)
	case leases.Store != "dynamodb" || leases.Table != im.table:
		return fmt.Errorf("--in-place makes %s the lease table, and the document has %s %s: say store: dynamodb and table: %[1]s there", im.table, leases.Store, leases.Table)
	}
	return nil
}

// replace makes the other system's table the lease table.
func (im *importing) replace(ctx context.Context, layout importer.Layout, plan config.Plan, logger *slog.Logger) error {
	opts, err := dynamoOptions(ctx, plan)
	if err != nil {
		return exit(exitSurroundings, err)
	}
	cfg, err := awsconf.Load(ctx, serviceSettings(plan.LeaseService()))
	if err != nil {
		return exit(exitSurroundings, err)
	}
	store := func(table string, protected bool) dynamolease.Options {
		o := opts
		o.Table, o.DeletionProtection = table, protected
		return o
	}
	p := importer.InPlace{
		AWS: cfg, Layout: layout, Table: im.table, Backup: im.backup,
		Map: func(ctx context.Context, rows []importer.Row, faults []importer.Fault) ([]lease.Lease, error) {
			return im.mapInPlace(ctx, layout, plan, rows, faults)
		},
		Make: func(ctx context.Context, table string, protected bool) (lease.Store, error) {
			return dynamolease.Open(ctx, store(table, protected))
		},
		Open: func(ctx context.Context, table string) (lease.Store, error) {
			return dynamolease.OpenReader(ctx, store(table, false))
		},
		Progress: func(what string) { logger.Info(what) },
	}
	if err := p.Run(ctx); errors.Is(err, fs.ErrNotExist) {
		return exit(exitSurroundings, err)
	} else if err != nil {
		return err
	}
	for i := range im.report.Shards {
		im.report.Shards[i].Outcome = importer.Written
	}
	return nil
}

// mapInPlace refuses rows of other streams too: they would be gone.
func (im *importing) mapInPlace(ctx context.Context, layout importer.Layout, plan config.Plan, rows []importer.Row, faults []importer.Fault) ([]lease.Lease, error) {
	m, err := im.mapRows(ctx, layout, plan, nil, rows, faults)
	if err != nil {
		return nil, err
	}
	for _, left := range m.Foreign {
		m.Faults = append(m.Faults, importer.Fault{Row: left.Row, Reason: left.Reason + ", and --in-place would delete it"})
	}
	im.report.note(m, nil)
	if err := im.refusal(m); err != nil {
		return nil, err
	}
	return m.Leases, nil
}
