package duckdb

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
)

func TestConformance(t *testing.T) {
	desttest.Run(t, func(t *testing.T) desttest.Harness { return newHarness(t, "main").Harness })
}

// TestConformanceInNamespace: tables, state and evolution in a schema of their own.
func TestConformanceInNamespace(t *testing.T) {
	desttest.Run(t, func(t *testing.T) desttest.Harness { return newHarness(t, `Orders`).Harness })
}

type harness struct {
	desttest.Harness
	path      string
	namespace string
	look      *Destination // never fails: the handle by which the tests look
	faults    injector
}

func newHarness(t *testing.T, namespace string) *harness {
	t.Helper()
	h := &harness{path: filepath.Join(t.TempDir(), "orders.duckdb"), namespace: namespace}
	h.look = open(t, Options{Path: h.path, Namespace: namespace})
	h.Harness = desttest.Harness{
		Open: func(t *testing.T, application string, adopt bool) kinetl.Destination {
			d, err := New(Options{Path: h.path, Namespace: namespace, Application: application, Adopt: adopt})
			if err != nil {
				t.Fatal(err)
			}
			d.sabotage, d.loseCommit = h.faults.next, h.faults.afterCommit
			return d
		},
		Read: h.read,
		AddColumn: func(t *testing.T, table, name, typ string, notNull bool) {
			h.exec(t, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", h.look.table(table), quote(name), typ))
			if notNull { // DuckDB adds no constraint together with a column
				h.exec(t, fmt.Sprintf("UPDATE %s SET %s = 0", h.look.table(table), quote(name)))
				h.exec(t, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", h.look.table(table), quote(name)))
			}
		},
		Unalterable: func(t *testing.T, table, column string) {
			h.exec(t, fmt.Sprintf("CREATE INDEX pin ON %s (%s)", h.look.table(table), quote(column)))
		},
		FailStatement: h.faults.fail,
		LoseCommit:    h.faults.lose,
	}
	return h
}

func open(t *testing.T, o Options) *Destination {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (h *harness) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := h.look.db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (h *harness) query(t *testing.T, each func(*sql.Rows) error, query string, args ...any) {
	t.Helper()
	rows, err := h.look.db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// rendered reads a column as desttest.Text renders its class.
func rendered(c kinetl.Column) string {
	switch c.Class {
	case kinetl.Double:
		return fmt.Sprintf(`regexp_replace(CAST(CAST(%s AS DOUBLE) AS VARCHAR), '\.0$', '')`, quote(c.Name))
	case kinetl.Timestamp:
		return fmt.Sprintf("strftime(%s AT TIME ZONE 'UTC', '%%Y-%%m-%%dT%%H:%%M:%%S.%%fZ')", quote(c.Name))
	case kinetl.Metadata:
		return fmt.Sprintf("CAST(to_json(%s) AS VARCHAR)", quote(c.Name))
	}
	return fmt.Sprintf("CAST(%s AS VARCHAR)", quote(c.Name))
}

func (h *harness) read(t *testing.T, table string, schema kinetl.Schema) desttest.Contents {
	t.Helper()
	out := desttest.Contents{Watermarks: map[kinetl.ShardID]kinetl.Position{}}
	if len(schema) > 0 {
		query := "SELECT "
		for i, c := range schema {
			if i > 0 {
				query += ", "
			}
			query += rendered(c)
		}
		h.query(t, func(rows *sql.Rows) error {
			values := make([]sql.NullString, len(schema))
			into := make([]any, len(schema))
			for i := range values {
				into[i] = &values[i]
			}
			err := rows.Scan(into...)
			row := desttest.Row{Cells: map[string]string{}}
			for i, v := range values {
				if v.Valid {
					row.Cells[schema[i].Name] = v.String
				}
			}
			out.Rows = append(out.Rows, row)
			return err
		}, query+" FROM "+h.look.table(table)+" ORDER BY rowid")
	}
	h.query(t, func(rows *sql.Rows) error {
		var l desttest.DeadLetter
		var arrived, at sql.NullTime
		err := rows.Scan(&l.Shard.Stream, &l.Shard.Created, &l.Shard.Shard, &l.Sequence, &l.Sub, &arrived, &l.PartitionKey, &l.Reason, &l.Payload, &at)
		l.Arrived, l.At = arrived.Time, at.Time
		out.DeadLetters = append(out.DeadLetters, l)
		return err
	}, "SELECT stream, stream_created, shard, sequence, sub_sequence, arrival, partition_key, reason, payload, \"at\" FROM "+h.look.table(deadLetters(table))+" ORDER BY rowid")
	h.query(t, func(rows *sql.Rows) error {
		var s kinetl.ShardID
		var through string
		err := rows.Scan(&s.Stream, &s.Created, &s.Shard, &through)
		out.Watermarks[s] = kinetl.Position(through)
		return err
	}, "SELECT stream, stream_created, shard, through FROM "+h.look.table(watermarksTable)+" WHERE table_name = ?", kinetl.Fold(table))
	h.query(t, func(rows *sql.Rows) error {
		var g desttest.Gap
		var from, to string
		err := rows.Scan(&g.Shard.Stream, &g.Shard.Created, &g.Shard.Shard, &from, &to, &g.Reason, &g.At)
		g.From, g.To = kinetl.Position(from), kinetl.Position(to)
		out.Gaps = append(out.Gaps, g)
		return err
	}, "SELECT stream, stream_created, shard, from_position, to_position, reason, \"at\" FROM "+h.look.table(gapsTable)+" WHERE table_name = ? ORDER BY rowid", kinetl.Fold(table))
	return out
}

// injector fails the nth statement from now, or loses the answer of a COMMIT.
type injector struct {
	mu     sync.Mutex
	left   int
	losing bool
}

func (i *injector) fail(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = n
}

func (i *injector) lose() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.losing = true
}

func (i *injector) next() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left--
	return i.left == 0
}

func (i *injector) afterCommit() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.losing {
		i.losing = false
		return errors.New("injected: the answer is lost")
	}
	return nil
}
