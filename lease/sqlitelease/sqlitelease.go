// Package sqlitelease keeps leases in one SQLite file, for the workers of one
// machine. It is the embedded default.
package sqlitelease

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // the driver; pure Go

	"github.com/kinetl/kinetl/lease"
)

const schema = `CREATE TABLE IF NOT EXISTS leases (
	leaseKey TEXT PRIMARY KEY,
	leaseOwner TEXT NOT NULL,
	leaseCounter INTEGER NOT NULL,
	checkpoint TEXT NOT NULL,
	checkpointSubSequenceNumber INTEGER NOT NULL,
	ownerSwitchesSinceCheckpoint INTEGER NOT NULL,
	parentShardId TEXT NOT NULL,
	kinetlCreated TEXT NOT NULL,
	kinetlStart TEXT NOT NULL,
	kinetlCaughtUp TEXT NOT NULL,
	kinetlSink TEXT NOT NULL,
	kinetlIncident TEXT NOT NULL,
	kinetlAccepted TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID`

const columns = `leaseKey, leaseOwner, leaseCounter, checkpoint, checkpointSubSequenceNumber,
	ownerSwitchesSinceCheckpoint, parentShardId, kinetlCreated, kinetlStart, kinetlCaughtUp, kinetlSink, kinetlIncident, kinetlAccepted`

// Store is a lease.Store in a file. An owner holds an operating system lock on a
// file of its own for as long as its process lives, so a free lock tells at once,
// without waiting for the failover time, that its leases are nobody's (R25).
type Store struct {
	db      *sql.DB
	workers string // folder of the workers' lock files
	lock    *flock.Flock
	me      string
}

// Open opens the file for a worker, creating it and its folder when absent, and
// takes the worker's lock.
func Open(path, worker string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lease store: %w", err)
	}
	s := &Store{workers: path + ".workers", me: worker}
	if err := os.MkdirAll(s.workers, 0o755); err != nil {
		return nil, fmt.Errorf("lease store: %w", err)
	}
	s.lock = flock.New(s.lockFile(worker))
	switch got, err := s.lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("lease store %s: lock of worker %s: %w", path, worker, err)
	case !got:
		return nil, fmt.Errorf("lease store %s: worker %s is running already: give this one another workerId", path, worker)
	}
	if err := s.open(path, "rwc"); err != nil {
		s.Close()
		return nil, err
	}
	_, err := s.db.Exec(schema)
	if err == nil {
		err = s.addColumns()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("lease store %s: %w", path, err)
	}
	return s, nil
}

// OpenReader opens an existing file to look at. It takes no lock.
func OpenReader(path string) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("lease store %s: nothing has run with it yet: %w", path, err)
	}
	s := &Store{workers: path + ".workers"}
	if err := s.open(path, "rw"); err != nil {
		return nil, err
	}
	if err := s.addColumns(); err != nil {
		s.Close()
		return nil, fmt.Errorf("lease store %s: %w", path, err)
	}
	return s, nil
}

// addColumns adds what the table of an earlier version lacks. Workers of that version
// may go on using the file: they name the columns that they write.
func (s *Store) addColumns() error {
	var have, all int
	err := s.db.QueryRow(`SELECT count(*) FILTER (WHERE name = 'kinetlAccepted'), count(*) FROM pragma_table_info('leases')`).Scan(&have, &all)
	if err != nil || have > 0 || all == 0 {
		return err
	}
	_, err = s.db.Exec(`ALTER TABLE leases ADD COLUMN kinetlAccepted TEXT NOT NULL DEFAULT ''`)
	if err != nil && strings.Contains(err.Error(), "duplicate column") {
		return nil // another process was faster
	}
	return err
}

func (s *Store) open(path, mode string) (err error) {
	// NORMAL loses the last writes on power failure, not on a crash; a lease that
	// falls back is harmless, because the table's watermark decides.
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)"}}
	s.db, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return fmt.Errorf("lease store %s: %w", path, err)
	}
	// One connection: writers of one file exclude each other anyway, and waiting in
	// database/sql respects contexts, which waiting in SQLite does not.
	s.db.SetMaxOpenConns(1)
	return nil
}

// Close releases the worker's lock and with it, if it still owns any, its leases.
func (s *Store) Close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	if s.lock != nil {
		// Removed before it is unlocked: whoever finds no file takes the owner for gone.
		_ = os.Remove(s.lock.Path())
		err = errors.Join(err, s.lock.Unlock())
	}
	return err
}

func (s *Store) lockFile(worker string) string {
	return filepath.Join(s.workers, url.PathEscape(worker))
}

// gone reports whether a worker's process has ended.
func (s *Store) gone(worker string) bool {
	if worker == "" || worker == s.me {
		return false
	}
	path := s.lockFile(worker)
	if _, err := os.Stat(path); err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	l := flock.New(path)
	got, err := l.TryRLock()
	if err != nil || !got {
		return false
	}
	// Worker ids are never used again, so the file has told what it had to tell.
	_ = os.Remove(path)
	_ = l.Unlock()
	return true
}

// List returns every row, ordered by key.
func (s *Store) List(ctx context.Context) ([]lease.Lease, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT `+columns+` FROM leases ORDER BY leaseKey`)
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	defer rows.Close()
	var out []lease.Lease
	gone := map[string]bool{}
	for rows.Next() {
		l, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("read leases: %w", err)
		}
		if _, asked := gone[l.Owner]; !asked {
			gone[l.Owner] = s.gone(l.Owner)
		}
		l.OwnerGone = gone[l.Owner]
		out = append(out, l)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	return out, nil
}

// Get returns one row.
func (s *Store) Get(ctx context.Context, key string) (lease.Lease, bool, error) {
	l, err := scan(s.db.QueryRowContext(ctx, `SELECT `+columns+` FROM leases WHERE leaseKey = ?`, key))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return lease.Lease{}, false, nil
	case err != nil:
		return lease.Lease{}, false, fmt.Errorf("read lease %s: %w", key, err)
	}
	l.OwnerGone = s.gone(l.Owner)
	return l, true, nil
}

// Create adds a row.
func (s *Store) Create(ctx context.Context, l lease.Lease) error {
	return s.write(ctx, "create lease "+l.Key,
		`INSERT INTO leases (`+columns+`) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`, values(l)...)
}

// Update replaces a row.
func (s *Store) Update(ctx context.Context, old, next lease.Lease) (lease.Lease, error) {
	next.Key, next.Counter, next.OwnerGone = old.Key, old.Counter+1, false
	args := append(values(next), old.Key, old.Owner, old.Counter)
	err := s.write(ctx, "update lease "+old.Key,
		`UPDATE leases SET (`+columns+`) = (?,?,?,?,?,?,?,?,?,?,?,?,?) WHERE leaseKey = ? AND leaseOwner = ? AND leaseCounter = ?`, args...)
	if err != nil {
		return lease.Lease{}, err
	}
	return next, nil
}

// Delete removes a row.
func (s *Store) Delete(ctx context.Context, l lease.Lease) error {
	return s.write(ctx, "delete lease "+l.Key,
		`DELETE FROM leases WHERE leaseKey = ? AND leaseOwner = ? AND leaseCounter = ?`, l.Key, l.Owner, l.Counter)
}

func (s *Store) write(ctx context.Context, what, statement string, args ...any) error {
	result, err := s.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("%s: %w", what, errors.Join(lease.ErrLost, err))
	}
	return nil
}

func values(l lease.Lease) []any {
	sink := ""
	if l.Sink != (lease.Sink{}) {
		b, _ := json.Marshal(l.Sink) // three strings: never fails
		sink = string(b)
	}
	return []any{
		l.Key, l.Owner, l.Counter, l.Checkpoint, int64(l.Sub), l.OwnerSwitches, strings.Join(l.Parents, ","),
		instant(l.Created), instant(l.Start), instant(l.CaughtUp), sink, l.Incident, l.Accepted,
	}
}

func scan(row interface{ Scan(...any) error }) (lease.Lease, error) {
	var l lease.Lease
	var sub int64
	var parents, created, start, caughtUp, sink string
	if err := row.Scan(&l.Key, &l.Owner, &l.Counter, &l.Checkpoint, &sub, &l.OwnerSwitches, &parents, &created, &start, &caughtUp, &sink, &l.Incident, &l.Accepted); err != nil {
		return l, err
	}
	l.Sub = uint64(sub)
	if parents != "" {
		l.Parents = strings.Split(parents, ",")
	}
	for _, f := range []struct {
		text string
		into *time.Time
	}{{created, &l.Created}, {start, &l.Start}, {caughtUp, &l.CaughtUp}} {
		if f.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, f.text)
		if err != nil {
			return l, fmt.Errorf("lease %s: %w", l.Key, err)
		}
		*f.into = t
	}
	if sink != "" {
		if err := json.Unmarshal([]byte(sink), &l.Sink); err != nil {
			return l, fmt.Errorf("lease %s: kinetlSink: %w", l.Key, err)
		}
	}
	return l, nil
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
