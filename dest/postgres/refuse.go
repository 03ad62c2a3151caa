package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kinetl/kinetl"
)

// maxRefused bounds the search for bad rows: what is found is reported, and the next
// try of the shard finds the rest.
const maxRefused = 1000

// findRefused turns the failure of a COPY into a *RejectedError that names each bad row
// of the first shard that has any (R13). If none is found, the failure was about
// something else and is returned as it is.
//
// The rows are stored again, in a transaction that is rolled back, each stretch beside
// all rows found good so far: two rows may be good each and not both.
func (d *Destination) findRefused(ctx context.Context, c *commit, cause error) error {
	refused := &kinetl.RejectedError{Table: c.table}
	err := d.rehearse(ctx, func(t *tx) error {
		again := &commit{table: c.table, parts: c.parts, Admitted: kinetl.Admitted{Apply: c.Apply}}
		rows := again.rows()
		if len(rows) == 0 {
			return nil
		}
		if err := again.lockColumns(ctx, t); err != nil {
			return err
		}
		if err := again.check(d, rows); err != nil {
			return err
		}
		if _, err := t.exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			return err
		}
		s := &search{tx: t, table: c.table, columns: again.columns}
		for _, r := range rows {
			if len(s.bad) > 0 && r.part.Shard != refused.Shard {
				break
			}
			refused.Shard = r.part.Shard
			if err := s.split(ctx, r); err != nil {
				return err
			}
		}
		refused.Rows = s.bad
		return nil
	})
	var changed *kinetl.SchemaChangedError
	switch {
	case errors.As(err, &changed):
		return changed
	case err != nil:
		return fmt.Errorf("look for the rows that were refused (%w): %w", cause, err)
	case len(refused.Rows) == 0:
		return cause
	}
	return refused
}

type search struct {
	*tx
	table   string
	columns []column
	bad     []kinetl.RejectedRow
}

// split stores the good rows of a stretch and notes the bad ones. The server says which
// row of a COPY it stopped at, except where a trigger or a constraint looks at the rows
// after all are stored; then the stretch is halved.
func (s *search) split(ctx context.Context, r stretch) error {
	n := r.to - r.from
	if n == 0 || len(s.bad) >= maxRefused {
		return nil
	}
	err := s.attempt(ctx, func() error { return s.copyRows(ctx, s.table, s.columns, []stretch{r}) })
	switch {
	case err == nil:
		return nil
	case !isDataError(err):
		return err
	case n == 1:
		s.bad = append(s.bad, kinetl.RejectedRow{Position: r.part.RowIDs[r.from].Position(), Reason: reason(err)})
		return nil
	}
	cuts := []int{r.from, r.from + n/2, r.to}
	if at := failedRow(err); at >= 1 && at <= n {
		cuts = []int{r.from, r.from + at - 1, r.from + at, r.to}
	}
	for i, from := range cuts[:len(cuts)-1] {
		if err := s.split(ctx, stretch{r.part, from, cuts[i+1]}); err != nil {
			return err
		}
	}
	return nil
}

// failedRow is the row, from 1 on, at which COPY stopped, or 0 if the error does not
// say. Its context ends in "COPY table, line 7, column c", in the server's language; a
// table's name may hold anything, but stands before the last comma that a number follows.
func failedRow(err error) int {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return 0
	}
	_, text, found := strings.Cut("\n"+e.Where, "\nCOPY ")
	if !found {
		return 0
	}
	for _, part := range strings.Split(text, ", ")[1:] {
		words := strings.Fields(part)
		if len(words) != 2 {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSuffix(words[1], ":")); err == nil {
			return n
		}
	}
	return 0
}

// reason is the server's words. Of a key it tells which; of other rows it would print
// all values.
func reason(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return line(err.Error())
	}
	text := e.Message
	if e.Detail != "" && e.Code != "23514" && e.Code != "23502" {
		text += ": " + e.Detail
	}
	if e.ColumnName == "" {
		if _, name, found := strings.Cut(e.Where, ", column "); found {
			name, _, _ = strings.Cut(name, "\n")
			text += " (column " + name + ")"
		}
	}
	const most = 500
	if text = line(text); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
