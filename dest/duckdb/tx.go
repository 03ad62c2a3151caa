package duckdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	ddb "github.com/duckdb/duckdb-go/v2"
	"github.com/kinetl/kinetl"
)

// tx is one transaction. After an error of any of its methods the transaction must
// end: transact rolls it back.
type tx struct {
	d    *Destination
	conn *sql.Conn
}

// transact runs fn in a transaction on a connection of its own.
//
// After any error it rolls back and throws the connection away. DuckDB reports
// success for COMMIT of an aborted transaction and stores nothing (R10), so an
// error that is swallowed on the way would lose rows without a sign: fn returns
// every error, and nothing is committed after one.
func (d *Destination) transact(ctx context.Context, fn func(*tx) error) error {
	return d.transaction(ctx, true, fn)
}

// rehearse runs fn in a transaction that is always rolled back.
func (d *Destination) rehearse(ctx context.Context, fn func(*tx) error) error {
	return d.transaction(ctx, false, fn)
}

func (d *Destination) transaction(ctx context.Context, commit bool, fn func(*tx) error) error {
	err := d.try(ctx, commit, fn)
	// After a full disk, say, DuckDB refuses everything until the file is opened anew.
	if errorType(err) == ddb.ErrorTypeFatal || err != nil && strings.Contains(err.Error(), "database has been invalidated") {
		return &kinetl.BrokenError{Cause: err}
	}
	return err
}

func (d *Destination) try(ctx context.Context, commit bool, fn func(*tx) error) (err error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", d.opts.Path, oneLine(err))
	}
	defer conn.Close()
	t := &tx{d: d, conn: conn}

	d.opts.Observe("begin")
	if _, err := t.exec(ctx, "BEGIN TRANSACTION"); err != nil {
		t.discard(ctx)
		return fmt.Errorf("begin: %w", err)
	}
	if err := fn(t); err != nil || !commit {
		t.discard(ctx)
		return err
	}
	d.opts.Observe("commit")
	if _, err := t.exec(ctx, "COMMIT"); err != nil {
		t.discard(ctx)
		return fmt.Errorf("commit: %w", err)
	}
	d.opts.Observe("committed")
	if d.loseCommit != nil {
		return d.loseCommit()
	}
	return nil
}

// discard rolls back, also when ctx has ended, and takes the connection out of use.
// A rollback of what is no longer a transaction fails; that is what it is for.
func (t *tx) discard(ctx context.Context) {
	_, _ = t.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
}

func (t *tx) sabotaged(query string) string {
	if t.d.sabotage != nil && t.d.sabotage() {
		return "SELECT error('injected fault')"
	}
	return query
}

// exec runs a statement and returns the number of rows that it changed.
func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if q := t.sabotaged(query); q != query {
		query, args = q, nil
	}
	result, err := t.conn.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, oneLine(err)
	}
	return result.RowsAffected()
}

// query runs a statement and calls each for every row of its result.
func (t *tx) query(ctx context.Context, each func(scan func(...any) error) error, query string, args ...any) error {
	if q := t.sabotaged(query); q != query {
		query, args = q, nil
	}
	rows, err := t.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return oneLine(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return oneLine(err)
	}
	return nil
}

// lineError keeps the first line of DuckDB's text, which goes on with a drawing of
// the statement.
type lineError struct{ err error }

func (e lineError) Error() string {
	text := e.err.Error()
	if first, _, ok := strings.Cut(text, "\n"); ok {
		return strings.TrimSpace(first)
	}
	return text
}

func (e lineError) Unwrap() error { return e.err }

func oneLine(err error) error { return lineError{err} }

func errorType(err error) ddb.ErrorType {
	var e *ddb.Error
	if errors.As(err, &e) {
		return e.Type
	}
	return -1
}

// isConflict: another transaction changed the same thing first. DuckDB does not
// wait for locks; whoever comes second fails at once.
func isConflict(err error) bool { return errorType(err) == ddb.ErrorTypeTransaction }

// isRefusal: the engine will not do this statement, now or later, because of what
// the table is: an index, a generated column or a CHECK depends on the column.
func isRefusal(err error) bool {
	switch errorType(err) {
	case ddb.ErrorTypeCatalog, ddb.ErrorTypeBinder, ddb.ErrorTypeDependency, ddb.ErrorTypeNotImplemented:
		return true
	}
	return false
}

// isDataError: the statement failed because of a value.
func isDataError(err error) bool {
	switch errorType(err) {
	case ddb.ErrorTypeConstraint, ddb.ErrorTypeConversion, ddb.ErrorTypeOutOfRange, ddb.ErrorTypeInvalidInput,
		ddb.ErrorTypeInvalidType, ddb.ErrorTypeMismatchType:
		return true
	}
	return false
}

// quote makes an identifier of any text.
func quote(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// table is the quoted name of a table in the namespace. The database's own name is
// part of it: "main"."x" also finds a temporary table x, and in orders.duckdb the
// schema in "orders"."x" is taken for the database.
func (d *Destination) table(name string) string {
	return d.schema() + "." + quote(name)
}

func (d *Destination) schema() string {
	return quote(d.catalog) + "." + quote(d.opts.Namespace)
}
