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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // the driver; pure Go

	"github.com/kinetl/kinetl/lease"
)

// columns are those of the table leases, in the order of values and scan, with what
// makes them. Those that have a default came after the first version: a file of that
// one gets them when it is opened, and its workers, which name the columns that they
// write, may go on beside. The last one is written by Signal alone.
var columns = [][2]string{
	{"leaseKey", "TEXT PRIMARY KEY"},
	{"leaseOwner", "TEXT NOT NULL"},
	{"leaseCounter", "INTEGER NOT NULL"},
	{"checkpoint", "TEXT NOT NULL"},
	{"checkpointSubSequenceNumber", "INTEGER NOT NULL"},
	{"ownerSwitchesSinceCheckpoint", "INTEGER NOT NULL"},
	{"parentShardId", "TEXT NOT NULL"},
	{"kinetlCreated", "TEXT NOT NULL"},
	{"kinetlStart", "TEXT NOT NULL"},
	{"kinetlCaughtUp", "TEXT NOT NULL"},
	{"kinetlSink", "TEXT NOT NULL"},
	{"kinetlIncident", "TEXT NOT NULL"},
	{"kinetlAccepted", "TEXT NOT NULL DEFAULT ''"},
	{"childShardIds", "TEXT NOT NULL DEFAULT ''"},
	{"startingHashKey", "TEXT NOT NULL DEFAULT ''"},
	{"endingHashKey", "TEXT NOT NULL DEFAULT ''"},
	{"pendingCheckpoint", "TEXT NOT NULL DEFAULT ''"},
	{"pendingCheckpointSubSequenceNumber", "INTEGER NOT NULL DEFAULT 0"},
	{"checkpointOwner", "TEXT NOT NULL DEFAULT ''"},
	{"kinetlStream", "TEXT NOT NULL DEFAULT ''"},
	{"throughputKBps", "REAL NOT NULL DEFAULT 0"},
	{"kinetlSignal", "TEXT NOT NULL DEFAULT ''"},
}

// names lists columns, separated by commas.
func names(columns [][2]string) string {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c[0])
	}
	return b.String()
}

// marks is n question marks, separated by commas.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

func schema() string {
	var definitions []string
	for _, c := range columns {
		definitions = append(definitions, c[0]+" "+c[1])
	}
	return `CREATE TABLE IF NOT EXISTS leases (` + strings.Join(definitions, ", ") + `) WITHOUT ROWID`
}

// Store is a lease.Store in a file. An owner holds an operating system lock on a
// file of its own for as long as its process lives, so a free lock tells at once,
// without waiting for the failover time, that its leases are nobody's (R25).
type Store struct {
	db       *sql.DB
	prepared sync.Map // statement -> *sql.Stmt; closed with db
	workers  string   // folder of the workers' lock files
	lock     *flock.Flock
	me       string
	renewals renewals
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
	_, err := s.db.Exec(schema())
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

// addColumns adds what the table of an earlier version lacks.
func (s *Store) addColumns() error {
	var have sql.NullString
	if err := s.db.QueryRow(`SELECT group_concat(name) FROM pragma_table_info('leases')`).Scan(&have); err != nil || !have.Valid {
		return err
	}
	present := strings.Split(have.String, ",")
	for _, c := range columns {
		if slices.Contains(present, c[0]) {
			continue
		}
		_, err := s.db.Exec(`ALTER TABLE leases ADD COLUMN ` + c[0] + ` ` + c[1])
		if err != nil && !strings.Contains(err.Error(), "duplicate column") { // another process was faster
			return err
		}
	}
	return nil
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
	rows, err := s.db.QueryContext(ctx, `SELECT `+names(columns)+` FROM leases ORDER BY leaseKey`)
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
	l, err := scan(s.db.QueryRowContext(ctx, `SELECT `+names(columns)+` FROM leases WHERE leaseKey = ?`, key))
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
		`INSERT INTO leases (`+names(columns)+`) VALUES (`+marks(len(columns))+`) ON CONFLICT DO NOTHING`, append(values(l), l.Signal)...)
}

// Update replaces a row, but for its signal. A renewal shares its transaction with
// others: it takes some 100 ms.
func (s *Store) Update(ctx context.Context, old, next lease.Lease) (lease.Lease, error) {
	next = lease.Written(old, next)
	if renews(old, next) {
		if err := s.renew(ctx, old, next); err != nil {
			return lease.Lease{}, err
		}
		return next, nil
	}
	written := columns[:len(columns)-1]
	err := s.write(ctx, "update lease "+old.Key,
		`UPDATE leases SET (`+names(written)+`) = (`+marks(len(written))+`) WHERE leaseKey = ? AND leaseOwner = ? AND leaseCounter = ?`,
		append(values(next), old.Key, old.Owner, old.Counter)...)
	if err != nil {
		return lease.Lease{}, err
	}
	return next, nil
}

// Signal sets a row's signal.
func (s *Store) Signal(ctx context.Context, key, signal string) error {
	return s.write(ctx, "signal on lease "+key, `UPDATE leases SET kinetlSignal = ? WHERE leaseKey = ?`, signal, key)
}

// Delete removes a row.
func (s *Store) Delete(ctx context.Context, l lease.Lease) error {
	return s.write(ctx, "delete lease "+l.Key,
		`DELETE FROM leases WHERE leaseKey = ? AND leaseOwner = ? AND leaseCounter = ?`, l.Key, l.Owner, l.Counter)
}

func (s *Store) write(ctx context.Context, what, statement string, args ...any) error {
	prepared, err := s.prepare(ctx, statement)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := changeOne(ctx, prepared, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// changeOne changes one row, or returns lease.ErrLost if it is not there.
func changeOne(ctx context.Context, statement *sql.Stmt, args ...any) error {
	result, err := statement.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(lease.ErrLost, err)
	}
	return nil
}

// prepare parses each of the few statements once: that is half of what a renewal of
// one lease costs, and thousands of leases are renewed every few seconds.
func (s *Store) prepare(ctx context.Context, statement string) (*sql.Stmt, error) {
	if p, ok := s.prepared.Load(statement); ok {
		return p.(*sql.Stmt), nil
	}
	p, err := s.db.PrepareContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	if earlier, ok := s.prepared.LoadOrStore(statement, p); ok {
		_ = p.Close() // another goroutine was faster
		return earlier.(*sql.Stmt), nil
	}
	return p, nil
}

// values are those of all columns but the last.
func values(l lease.Lease) []any {
	sink := ""
	if l.Sink != (lease.Sink{}) {
		b, _ := json.Marshal(l.Sink) // three strings: never fails
		sink = string(b)
	}
	return []any{
		l.Key, l.Owner, l.Counter, l.Checkpoint, int64(l.Sub), l.OwnerSwitches, strings.Join(l.Parents, ","),
		instant(l.Created), instant(l.Start), instant(l.CaughtUp), sink, l.Incident, l.Accepted,
		strings.Join(l.Children, ","), l.StartingHashKey, l.EndingHashKey, l.PendingCheckpoint, int64(l.PendingSub), l.CheckpointOwner, l.Stream, l.Throughput,
	}
}

func scan(row interface{ Scan(...any) error }) (lease.Lease, error) {
	var l lease.Lease
	var sub, pendingSub int64
	var parents, created, start, caughtUp, sink, children string
	if err := row.Scan(&l.Key, &l.Owner, &l.Counter, &l.Checkpoint, &sub, &l.OwnerSwitches, &parents,
		&created, &start, &caughtUp, &sink, &l.Incident, &l.Accepted,
		&children, &l.StartingHashKey, &l.EndingHashKey, &l.PendingCheckpoint, &pendingSub, &l.CheckpointOwner, &l.Stream, &l.Throughput, &l.Signal); err != nil {
		return l, err
	}
	l.Sub, l.PendingSub = uint64(sub), uint64(pendingSub)
	l.Parents, l.Children = list(parents), list(children)
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

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
