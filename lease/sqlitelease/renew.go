package sqlitelease

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// gather is how long a renewal waits for others. A transaction costs more than the row
// in it: a worker with a thousand shards renews three hundred times a second, on the
// same connection that whoever waits for a write waits for.
const gather = 100 * time.Millisecond

// renewals are those that wait for their transaction.
type renewals struct {
	mu      sync.Mutex
	waiting []renewal
}

type renewal struct {
	wanted func() error // an error once its caller has gone
	old    lease.Lease
	next   lease.Lease
	done   chan error // takes one
}

// renews reports whether a write says only that the worker is there, and how far it
// is: nobody waits for it.
func renews(old, next lease.Lease) bool {
	old.Counter, old.CaughtUp, old.Throughput = next.Counter, next.CaughtUp, next.Throughput
	return old.Owner != "" && reflect.DeepEqual(old, next)
}

// renew writes next, which renews old, together with others.
func (s *Store) renew(ctx context.Context, old, next lease.Lease) error {
	r := renewal{ctx.Err, old, next, make(chan error, 1)}
	s.renewals.mu.Lock()
	s.renewals.waiting = append(s.renewals.waiting, r)
	if len(s.renewals.waiting) == 1 {
		time.AfterFunc(gather, s.renewAll)
	}
	s.renewals.mu.Unlock()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("update lease %s: %w", old.Key, ctx.Err())
	}
}

// renewAll writes what has gathered in one transaction.
func (s *Store) renewAll() {
	s.renewals.mu.Lock()
	group := s.renewals.waiting
	s.renewals.waiting = nil
	s.renewals.mu.Unlock()
	errs := make([]error, len(group))
	err := s.inTransaction(`UPDATE leases SET leaseCounter = ?, kinetlCaughtUp = ?, throughputKBps = ? WHERE leaseKey = ? AND leaseOwner = ? AND leaseCounter = ?`,
		func(ctx context.Context, update *sql.Stmt) {
			for i, r := range group {
				if errs[i] = r.wanted(); errs[i] == nil {
					errs[i] = changeOne(ctx, update, r.next.Counter, instant(r.next.CaughtUp), r.next.Throughput, r.old.Key, r.old.Owner, r.old.Counter)
				}
			}
		})
	for i, r := range group {
		if err != nil {
			errs[i] = err
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("update lease %s: %w", r.old.Key, errs[i])
		}
		r.done <- errs[i]
	}
}

// inTransaction has f execute a statement again and again.
func (s *Store) inTransaction(statement string, f func(context.Context, *sql.Stmt)) error {
	ctx := context.Background() // of many callers; each waits for its own
	prepared, err := s.prepare(ctx, statement)
	if err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	f(ctx, tx.StmtContext(ctx, prepared))
	return tx.Commit()
}
