package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tx is one transaction. After an error of any of its methods the transaction must
// end: transact rolls it back. try is the one way to survive an error.
type tx struct {
	d    *Destination
	conn *pgx.Conn
}

// transact runs fn in a transaction on a connection of its own.
//
// After any error it rolls back and throws the connection away. PostgreSQL answers
// COMMIT of an aborted transaction with success and the tag ROLLBACK, and stores
// nothing (R10): only the tag COMMIT counts.
//
// A lock that another session does not give back is waited for half a lease. If a
// session of this application stood in the way whose client does not answer any
// more, it is ended, and fn runs once more (R11). Fn must bear that.
func (d *Destination) transact(ctx context.Context, fn func(*tx) error) error {
	err := d.transaction(ctx, true, fn)
	if code(err) != lockNotAvailable {
		return err
	}
	ended, unblockErr := d.unblock(ctx)
	switch {
	case unblockErr != nil:
		return errors.Join(err, unblockErr)
	case ended == 0:
		return fmt.Errorf("%w: %s", err, d.blockers(ctx))
	}
	return d.transaction(ctx, true, fn)
}

// rehearse runs fn in a transaction that is always rolled back.
func (d *Destination) rehearse(ctx context.Context, fn func(*tx) error) error {
	return d.transaction(ctx, false, fn)
}

func (d *Destination) transaction(ctx context.Context, commit bool, fn func(*tx) error) error {
	t, err := d.begin(ctx)
	if err != nil {
		return err
	}
	if err := fn(t); err != nil || !commit {
		d.discard(t.conn)
		return err
	}
	d.opts.Observe("commit")
	if err := t.commit(ctx); err != nil {
		d.discard(t.conn)
		return err
	}
	d.release(t.conn)
	d.opts.Observe("committed")
	if d.loseCommit != nil {
		return d.loseCommit()
	}
	return nil
}

// begin starts a transaction. A connection that lay idle may have died meanwhile, with
// the server say; the next is tried, and in the end a new one.
func (d *Destination) begin(ctx context.Context) (*tx, error) {
	for tries := 0; ; tries++ {
		conn, used, err := d.acquire(ctx, tries > maxConns)
		if err != nil {
			return nil, err
		}
		t := &tx{d: d, conn: conn}
		d.opts.Observe("begin")
		_, err = t.exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
		if err == nil {
			return t, nil
		}
		d.discard(conn)
		if gone := code(err) == "" || code(err)[:2] == "57"; !used || !gone || ctx.Err() != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
	}
}

func (t *tx) commit(ctx context.Context) error {
	tag, err := t.run(ctx, "COMMIT")
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if tag.String() != "COMMIT" {
		return fmt.Errorf("commit: the server answered %s: a statement had failed, and nothing was stored", tag)
	}
	return nil
}

// attempt runs fn so that an error of it leaves the transaction as it was before.
func (t *tx) attempt(ctx context.Context, fn func() error) error {
	if _, err := t.exec(ctx, "SAVEPOINT attempt"); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		_, err = t.exec(ctx, "RELEASE SAVEPOINT attempt")
		return err
	}
	if code(err) == "" { // not the server's word: there may be no connection any more
		return err
	}
	if _, rollback := t.exec(ctx, "ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt"); rollback != nil {
		return fmt.Errorf("roll back after %w: %w", err, rollback)
	}
	return err
}

// faulty fails in a way that no rule of this package takes for a bad row or a
// refused change.
const faulty = "DO $$BEGIN RAISE 'injected fault' USING ERRCODE = 'io_error'; END$$"

func (t *tx) sabotaged() bool { return t.d.sabotage != nil && t.d.sabotage() }

func (t *tx) run(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	if t.sabotaged() {
		query, args = faulty, nil
	}
	tag, err := t.conn.Exec(ctx, query, args...)
	return tag, oneLine(err)
}

// exec runs a statement, or several without arguments, and returns the number of rows
// that the last one changed.
func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.run(ctx, query, args...)
	return tag.RowsAffected(), err
}

// query runs a statement and calls each for every row of its result.
func (t *tx) query(ctx context.Context, each func(scan func(...any) error) error, query string, args ...any) error {
	if t.sabotaged() {
		query, args = faulty, nil
	}
	rows, err := t.conn.Query(ctx, query, args...)
	if err != nil {
		return oneLine(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return oneLine(err)
		}
	}
	return oneLine(rows.Err())
}

// copyFrom runs a COPY ... FROM STDIN. The reader may still be read, for a moment,
// after an error was returned.
func (t *tx) copyFrom(ctx context.Context, query string, rows io.Reader) error {
	if t.sabotaged() {
		_, err := t.conn.Exec(ctx, faulty)
		return oneLine(err)
	}
	_, err := t.conn.PgConn().CopyFrom(ctx, rows, query)
	return oneLine(err)
}

// lineError keeps an error's text to one line.
type lineError struct{ err error }

func (e lineError) Error() string { return line(e.err.Error()) }
func (e lineError) Unwrap() error { return e.err }

func oneLine(err error) error {
	if err == nil {
		return nil
	}
	return lineError{err}
}

// line makes one line of a text.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }

const (
	lockNotAvailable = "55P03"
	undefinedTable   = "42P01"
	duplicateColumn  = "42701"
)

// code is the SQLSTATE that the server gave, or nothing if the error is not the server's.
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// isDataError: the statement failed because of a value. Classes: data exception,
// integrity constraint, check option, a limit of the program, raised by a trigger.
func isDataError(err error) bool {
	switch c := code(err); {
	case c == "":
		return false
	default:
		return c[:2] == "22" || c[:2] == "23" || c[:2] == "44" || c[:2] == "54" || c[:2] == "P0"
	}
}

// isRefusal: the engine will not change the table, now or later, because of what the
// table is, what it holds or whose it is: a view or an index depends on the column, a
// value can't be converted, it belongs to somebody else.
func isRefusal(err error) bool {
	switch c := code(err); {
	case c == "", c == lockNotAvailable, c == undefinedTable, c == duplicateColumn:
		return false
	default:
		return c[:2] == "0A" || c[:2] == "22" || c[:2] == "23" || c[:2] == "2B" || c[:2] == "42" || c[:2] == "54" || c[:2] == "55"
	}
}
