package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/kinetl/kinetl/lease"
)

// kclIndex is KCL 3's index of leases by owner.
const kclIndex = "LeaseOwnerToLeaseKeyIndex"

// Watch looks for a live KCL 3 fleet (R22). One goroutine uses it.
type Watch struct {
	Store *Store
	judge lease.Watch
}

// Look gives lease.Watch's verdict on what stands in the tables now. leases are what
// List has just returned. It makes up to eight requests. Tables that may not be read,
// or do not exist, are no error: the verdict's note names the former.
func (w *Watch) Look(ctx context.Context, now time.Time, leases []lease.Lease) (lease.Verdict, error) {
	g, err := w.Store.Generation(ctx)
	if err != nil {
		return lease.Verdict{}, err
	}
	return w.judge.Judge(now, g, leases), nil
}

// Generation reads what tells which KCL has used the table: its index, KCL 3's items,
// which KCL 3.5 keeps among the leases and 3.0 to 3.4 in a table of their own, and
// whether there is a table of worker metrics.
func (s *Store) Generation(ctx context.Context) (lease.Generation, error) {
	var g lease.Generation
	t, err := s.describe(ctx, s.o.Table)
	if err != nil {
		return g, s.failed("look for KCL", err)
	}
	if t != nil {
		g.Index = slices.ContainsFunc(t.GlobalSecondaryIndexes, func(i types.GlobalSecondaryIndexDescription) bool {
			return aws.ToString(i.IndexName) == kclIndex && i.IndexStatus != types.IndexStatusDeleting
		})
	}
	if err := s.coordination(ctx, &g, s.o.Table, "leaseKey"); err != nil {
		return g, s.failed("look for KCL", err)
	}
	if err := s.coordination(ctx, &g, s.o.CoordinatorTable, "key"); err != nil && !s.hidden(&g, s.o.CoordinatorTable, err) {
		return g, s.failed("look for KCL in table "+s.o.CoordinatorTable, err)
	}
	switch t, err := s.describe(ctx, s.o.MetricsTable); {
	case err == nil:
		g.Metrics = t != nil
	case !s.hidden(&g, s.o.MetricsTable, err):
		return g, s.failed("look for KCL in table "+s.o.MetricsTable, err)
	}
	return g, nil
}

// hidden notes a table that may not be read, and tells one that does not exist.
func (s *Store) hidden(g *lease.Generation, table string, err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "ResourceNotFoundException":
		return true
	case "AccessDeniedException":
		g.Unreadable = append(g.Unreadable, "table "+table+" may not be read")
		return true
	}
	return false
}

// coordination reads KCL 3's items of one table.
func (s *Store) coordination(ctx context.Context, g *lease.Generation, table, key string) error {
	for _, name := range []string{"Leader", "Migration3.0", "TableMigration3.5"} {
		it, err := s.get(ctx, table, item{key: text(name)})
		if err != nil {
			return err
		}
		if it == nil {
			continue
		}
		r := reader{it: it}
		switch name {
		case "Leader":
			l, err := lockOf(it)
			if err != nil {
				g.Unreadable = append(g.Unreadable, fmt.Sprintf("item Leader of table %s: %v", table, err))
				continue
			}
			l.Table = table
			g.Locks = append(g.Locks, l)
		case "Migration3.0":
			g.Client = r.text("cv")
		case "TableMigration3.5":
			g.Tables = r.text("tm")
		}
	}
	return nil
}

// lockOf reads the item of a leader's lock. Source: the attributes that the lock
// library writes which KCL 3 uses.
func lockOf(it item) (lease.Lock, error) {
	r := reader{it: it}
	l := lease.Lock{Owner: r.text("ownerName"), Version: r.text("recordVersionNumber"), Lease: 120 * time.Second}
	if ms := r.text("leaseDuration"); ms != "" {
		n, err := strconv.ParseInt(ms, 10, 32)
		if err != nil || n <= 0 {
			r.fail("leaseDuration", "is "+strconv.Quote(ms)+", no number of milliseconds")
		}
		l.Lease = time.Duration(n) * time.Millisecond
	}
	_, l.Released = it["isReleased"]
	if l.Version == "" {
		r.fail("recordVersionNumber", "is missing")
	}
	return l, r.err()
}
