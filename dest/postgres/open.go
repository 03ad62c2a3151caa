package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options say which tables a Destination writes and as whom.
type Options struct {
	// URL is the connection: postgres://user:password@host:port/database?sslmode=...,
	// or libpq's key=value words; required. What it leaves out is taken from libpq's
	// environment variables (PGHOST, PGPASSWORD, PGSSLMODE ...) and password file.
	URL string
	// Password wins over the URL's, and needs no %XX. Default: the URL's.
	Password string

	Schema      string // of the tables, made if missing; default "public"
	Application string // owner of the watermark rows (R1)
	Adopt       bool   // take over rows that another application owns

	// RewriteLimit is the bytes up to which a table is rewritten to widen a column
	// (R12), which locks out everybody else meanwhile; in a larger one the column
	// stays as it is, capped, and Why says what a person may do. Default 1 GiB;
	// math.MaxInt64 is no limit.
	RewriteLimit int64

	// LeaseTime is after how long another worker takes over from one that hangs
	// (failover). No call waits for a lock for longer than half of it, the server
	// ends a transaction that idles for that long, and one of this application's that
	// waits for its client for longer than all of it is ended by whoever it blocks
	// (R11). Default 10 s.
	LeaseTime time.Duration

	// Observe is called at the phases of a call, in the goroutine of the call:
	// "begin", "alter", "insert", "dead letters", "watermarks", "commit",
	// "committed". Tests that kill the process use it.
	Observe func(phase string)
}

const (
	defaultLease   = 10 * time.Second
	connectTimeout = 30 * time.Second // unless the URL has connect_timeout

	// maxConns is the connections of one Destination. There is one for each call in
	// flight, and a fleet that starts claims hundreds of shards at once.
	maxConns = 8

	// minVersion is PostgreSQL 13, as server_version_num has it.
	minVersion = 130000
)

// Destination stores parts in tables of one schema of a database. Any number of
// Destinations and processes may write the same tables.
type Destination struct {
	opts   Options
	config *pgx.ConnConfig
	slots  chan struct{} // one token for each connection in use

	mu     sync.Mutex
	idle   []*pgx.Conn
	closed bool
	ready  bool            // the state tables exist
	kept   map[string]bool // table and column whose NOT NULL the engine would not drop

	// Set by this package's tests: to make the next statement fail, and to lose
	// the answer of a COMMIT that succeeded.
	sabotage   func() bool
	loseCommit func() error
}

// New connects to the database, once, to see whether it can be used. Its errors say
// nothing of the password.
func New(ctx context.Context, opts Options) (*Destination, error) {
	d, err := open(opts)
	if err != nil {
		return nil, err
	}
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	d.idle = append(d.idle, conn)
	return d, nil
}

func open(opts Options) (*Destination, error) {
	if opts.Schema == "" {
		opts.Schema = "public"
	}
	opts.Schema = tableName(opts.Schema)
	if opts.RewriteLimit == 0 {
		opts.RewriteLimit = 1 << 30
	}
	if opts.LeaseTime == 0 {
		opts.LeaseTime = defaultLease
	}
	if opts.Observe == nil {
		opts.Observe = func(string) {}
	}
	config, err := parseURL(opts.URL)
	if err != nil {
		return nil, err
	}
	if opts.Password != "" {
		config.Password = opts.Password
	}
	opts.URL, opts.Password = "", ""
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	// A server that is gone without a word is noticed in a minute and not in many.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}}
	config.DialFunc = dialer.DialContext
	config.RuntimeParams["application_name"] = marker(opts.Application)
	config.RuntimeParams["client_encoding"] = "UTF8"
	return &Destination{opts: opts, config: config, slots: make(chan struct{}, maxConns), kept: map[string]bool{}}, nil
}

// parseURL reads the connection string. Where it is malformed nobody can tell which
// of its characters are the password, so an error shows none of them.
func parseURL(url string) (*pgx.ConnConfig, error) {
	if url == "" {
		return nil, errors.New("postgres: the connection URL is missing")
	}
	config, err := pgx.ParseConfig(url)
	var file *fs.PathError
	switch {
	case err == nil:
		return config, nil
	case errors.As(err, &file):
		return nil, fmt.Errorf("postgres: read a file that the connection URL names: %w", file)
	}
	return nil, errors.New("postgres: the connection URL can't be read: write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=MODE with %XX for special characters in user and password, or words such as host=HOST user=USER (it is not shown here, since it may hold a password)")
}

// connect makes a connection whose session is set up.
func (d *Destination) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, d.config.Copy())
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", oneLine(err))
	}
	if err := d.setUp(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the session in %s: %w", d.config.Database, oneLine(err)), conn.Close(ctx))
	}
	return conn, nil
}

// setUp sets what holds for the session, whatever the server, the database or the
// role has for a default. A synchronous_commit that promises less than "on" could
// lose a commit that was reported; more is left alone (R11).
func (d *Destination) setUp(ctx context.Context, conn *pgx.Conn) error {
	half := milliseconds(d.opts.LeaseTime / 2)
	var version int
	var encoding string
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
		set_config('lock_timeout', $1, false), set_config('idle_in_transaction_session_timeout', $1, false),
		set_config('TimeZone', 'UTC', false), set_config('extra_float_digits', '1', false),
		set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)`,
		half).Scan(&version, &encoding, nil, nil, nil, nil, nil)
	switch {
	case err != nil:
		return err
	case version < minVersion:
		return fmt.Errorf("the server is PostgreSQL %d: kinetl needs %d or later", version/10000, minVersion/10000)
	case encoding != "UTF8":
		return fmt.Errorf("the database's encoding is %s: kinetl needs UTF8", encoding)
	}
	return nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// acquire takes a connection for one call; fresh asks for one that has not been used.
func (d *Destination) acquire(ctx context.Context, fresh bool) (conn *pgx.Conn, used bool, err error) {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		<-d.slots
		return nil, false, errors.New("the destination was closed")
	}
	if n := len(d.idle); n > 0 && !fresh {
		conn, d.idle = d.idle[n-1], d.idle[:n-1]
	}
	d.mu.Unlock()
	if conn != nil {
		return conn, true, nil
	}
	if conn, err = d.connect(ctx); err != nil {
		<-d.slots
	}
	return conn, false, err
}

// release gives a connection back that is in no transaction.
func (d *Destination) release(conn *pgx.Conn) {
	d.mu.Lock()
	keep := !d.closed && !conn.IsClosed()
	if keep {
		d.idle = append(d.idle, conn)
	}
	d.mu.Unlock()
	if !keep {
		closeConn(conn)
	}
	<-d.slots
}

// discard closes a connection, and with it whatever is left of its transaction.
func (d *Destination) discard(conn *pgx.Conn) {
	closeConn(conn)
	<-d.slots
}

// closeConn says good-bye, if the server is there to hear it.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the socket is closed in any case
}

// Close ends the connections, once the calls in flight have returned theirs.
func (d *Destination) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	idle := d.idle
	d.idle, d.closed = nil, true
	d.mu.Unlock()
	for _, conn := range idle {
		closeConn(conn)
	}
	for range maxConns {
		d.slots <- struct{}{}
	}
	for range maxConns {
		<-d.slots // whoever waits for one finds that it is closed
	}
	return nil
}
