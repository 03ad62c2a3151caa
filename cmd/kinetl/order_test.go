package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// order looks for what no moment of a PostgreSQL table may show: of a key anything but
// the beginning of what was put for it, each record once (R30).
type order struct {
	dsn     string
	records string // query for k, the key, and n, the number from 0 on, of each stored record
	looks   int
}

// watch looks again and again until ctx ends or something is wrong.
func (o *order) watch(ctx context.Context, t *testing.T) {
	conn, err := pgx.Connect(ctx, o.dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	for ctx.Err() == nil && !t.Failed() {
		o.look(ctx, t, conn)
	}
}

// look is one statement: it sees one moment, of all its tables.
func (o *order) look(ctx context.Context, t *testing.T, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, fmt.Sprintf(`SELECT k, count(*), count(DISTINCT n), max(n)::bigint FROM (%s) r GROUP BY k
		HAVING count(*) <> max(n) + 1 OR count(DISTINCT n) <> count(*)`, o.records))
	if err == nil {
		var key string
		var count, distinct, most int64
		_, err = pgx.ForEachRow(rows, []any{&key, &count, &distinct, &most}, func() error {
			t.Errorf("R30: of key %s the table has %d records, %d of them different, up to number %d", key, count, distinct, most)
			return nil
		})
	}
	var answer *pgconn.PgError
	switch {
	case err == nil:
		o.looks++
	case ctx.Err() != nil, errors.As(err, &answer) && (answer.Code == "42P01" || answer.Code == "42703"):
		// Nothing is stored yet: there is no such table, or column.
	default:
		t.Errorf("look at the table: %v", err)
	}
}
