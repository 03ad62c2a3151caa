package duckdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	ddb "github.com/duckdb/duckdb-go/v2"
)

// Options say which tables a Destination writes and as whom.
type Options struct {
	Path        string // database file, made if missing; required
	Namespace   string // schema of the tables, made if missing; default "main"
	Application string // owner of the watermark rows (R1)
	Adopt       bool   // take over rows that another application owns

	// MemoryLimit bounds DuckDB's buffers, in bytes; it belongs inside the byte
	// budget (R27). Default: DuckDB's own, 80 % of the machine.
	MemoryLimit int64
	// Threads is how many threads DuckDB works with. Default 1: on two cores a second made
	// a pipeline no faster, since decoding needs a core too, and it spins while it waits
	// (bench/RESULTS.md).
	Threads int

	// RewriteLimit is the bytes up to which a table is rewritten to widen a column
	// (R12); in a larger one the column stays as it is, capped, and Why says what a
	// person may do. Default 1 GiB; math.MaxInt64 is no limit.
	RewriteLimit int64

	Now func() time.Time // default time.Now

	// Observe is called at the phases of a call, in the goroutine of the call:
	// "begin", "alter", "insert", "dead letters", "watermarks", "commit",
	// "committed", "checkpoint". Tests that kill the process use it.
	Observe func(phase string)
}

// RowGroup is the rows of a row group, DuckDB's unit of storage. A commit of whole row
// groups is compressed once and written straight into the file; rows beyond are
// written to the log as well, and a group that is not full is rewritten at a
// checkpoint. Source: DEFAULT_ROW_GROUP_SIZE in DuckDB's sources.
const RowGroup = 122_880

// maxTransactions is how many may run at once; others wait.
const maxTransactions = 8

// Destination stores parts in one DuckDB file. Several Destinations in one process
// may open the same file; they then share one engine. Two processes can't (R32).
type Destination struct {
	opts    Options
	db      *sql.DB
	catalog string // DuckDB's name for the database in the file

	mu         sync.Mutex
	ready      bool            // the state tables exist
	keptNotNil map[string]bool // table and column whose NOT NULL the engine would not drop

	// Set by this package's tests: to make the next statement fail, and to lose
	// the answer of a COMMIT that succeeded.
	sabotage   func() bool
	loseCommit func() error
}

// LockedError: another process has the database file open.
type LockedError struct {
	Path string
	PID  int    // 0 if DuckDB did not say
	Name string // of the holder's program, if DuckDB said so
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	if e.Name != "" {
		holder += " (" + e.Name + ")"
	}
	return fmt.Sprintf("database %s is open in %s: DuckDB admits one process at a time, stop that one first", e.Path, holder)
}

// New opens the database file, or makes it. Errors: *LockedError.
func New(opts Options) (*Destination, error) {
	if opts.Namespace == "" {
		opts.Namespace = "main"
	}
	if opts.RewriteLimit == 0 {
		opts.RewriteLimit = 1 << 30
	}
	if opts.Threads == 0 {
		opts.Threads = 1
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Observe == nil {
		opts.Observe = func(string) {}
	}
	path, err := databasePath(opts.Path)
	if err != nil {
		return nil, err
	}
	opts.Path = path
	connector, err := ddb.NewConnector(path, prepareConnection)
	if err != nil {
		return nil, openError(path, err)
	}
	d := &Destination{opts: opts, db: sql.OpenDB(connector), keptNotNil: map[string]bool{}}
	// Each transaction takes memory out of the limit. Thousands of shards that claim their
	// watermarks together would use up all of it, and DuckDB gives up a database whose
	// COMMIT finds none.
	d.db.SetMaxOpenConns(maxTransactions)
	if err := d.configure(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("configure database %s: %w", path, err), d.db.Close())
	}
	return d, nil
}

// databasePath makes the path absolute, so that two spellings of it share one
// engine. The driver takes what follows a "?" for settings and "%" for an escape.
func databasePath(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("duckdb: the path of the database file is missing")
	case strings.ContainsAny(path, "?%#"):
		return "", fmt.Errorf("duckdb: path %q: the characters ? %% # are not possible in a database's path", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("duckdb: path %q: %w", path, err)
	}
	return abs, nil
}

// prepareConnection: text without an offset is read as UTC wherever kinetl runs.
func prepareConnection(conn driver.ExecerContext) error {
	_, err := conn.ExecContext(context.Background(), "SET TimeZone = 'UTC'", nil)
	return err
}

// configure sets what holds for the whole database in this process. It is done by
// SET and not in the DSN because a second handle with another DSN is refused.
//
//   - preserve_insertion_order stays true, its default: with false an INSERT of
//     several row groups stores them in any order, and "a key's rows are a prefix
//     of its records, in order" would hold for none of them (R30).
//   - checkpoint_threshold: at its default of 16 MB nearly every commit waits for
//     a checkpoint. The price of a larger one is a longer replay after a crash.
//   - temp_directory stays beside the file, its default.
func (d *Destination) configure(ctx context.Context) error {
	settings := []string{"SET checkpoint_threshold = '256MB'", fmt.Sprintf("SET threads = %d", d.opts.Threads)}
	if d.opts.MemoryLimit > 0 {
		settings = append(settings, fmt.Sprintf("SET memory_limit = '%dB'", d.opts.MemoryLimit))
	}
	for _, s := range settings {
		if _, err := d.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	if err := d.db.QueryRowContext(ctx, "SELECT current_database()").Scan(&d.catalog); err != nil {
		return fmt.Errorf("ask for the database's name: %w", err)
	}
	return nil
}

// Close writes a checkpoint and closes the file. Nothing depends on the checkpoint:
// committed work is in the write-ahead log, so a failed one is not an error.
func (d *Destination) Close() error {
	d.opts.Observe("checkpoint")
	_, _ = d.db.Exec("CHECKPOINT") // refused while another handle is in a transaction
	if err := d.db.Close(); err != nil {
		return fmt.Errorf("close database %s: %w", d.opts.Path, err)
	}
	return nil
}

// DuckDB: Could not set lock on file "x.duckdb": Conflicting lock is held in
// /usr/bin/name (PID 123) by user root. See also ...
var lockHolder = regexp.MustCompile(`Conflicting lock is held in (?:(.*) )?\(PID (\d+)\)`)

func openError(path string, err error) error {
	text := err.Error()
	if !strings.Contains(text, "Could not set lock on file") {
		return fmt.Errorf("open database %s: %w", path, oneLine(err))
	}
	locked := &LockedError{Path: path}
	if m := lockHolder.FindStringSubmatch(text); m != nil {
		locked.Name = m[1]
		locked.PID, _ = strconv.Atoi(m[2]) // too large for an int: 0, not known
	}
	return locked
}
