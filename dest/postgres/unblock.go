package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// unblock ends the sessions of this application whose transaction is older than a
// lease and waits for its client: the process was stopped, or its machine is gone.
// What such a session locks it would lock until somebody noticed: the server sees a
// connection that is alive, and no timeout ends a COPY that gets no data. A session
// that is at work, rewriting a table say, is left alone.
//
// It returns how many were ended. The server takes a moment to do it.
func (d *Destination) unblock(ctx context.Context) (ended int, err error) {
	err = d.aside(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE application_name = $1 AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
			AND xact_start < clock_timestamp() - $2 * interval '1 microsecond'
			AND (state LIKE 'idle in transaction%' OR wait_event_type = 'Client')`,
			marker(d.opts.Application), d.opts.LeaseTime.Microseconds()).Scan(&ended)
	})
	if err != nil {
		return 0, fmt.Errorf("end sessions of this application that hang: %w", oneLine(err))
	}
	return ended, nil
}

// blockers says for a person which sessions hold locks in the schema. Of sessions of
// other roles the server may tell little.
func (d *Destination) blockers(ctx context.Context) string {
	var found []string
	err := d.aside(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT 'process ' || a.pid || ' (' || concat_ws(', ', 'user ' || a.usename, nullif(a.application_name, ''), a.state,
				'in a transaction for ' || extract(epoch FROM clock_timestamp() - a.xact_start)::bigint || ' s') || ')'
			FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid() AND a.datname = current_database() AND EXISTS (
				SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE l.pid = a.pid AND l.granted AND n.nspname = $1)
			ORDER BY a.xact_start LIMIT 3`, d.opts.Schema)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	switch {
	case err != nil:
		return "who holds the lock is not known"
	case len(found) == 0:
		return "whoever held the lock is done"
	}
	return "locks are held by " + line(strings.Join(found, ", "))
}

// aside uses a connection beside those that wait for locks.
func (d *Destination) aside(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	return fn(conn)
}
