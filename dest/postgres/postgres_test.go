package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/dest/postgres/postgrestest"
)

func TestConformance(t *testing.T) {
	desttest.Run(t, func(t *testing.T) desttest.Harness { return newHarness(t, "public").Harness })
}

// TestConformanceInSchema: tables, state and evolution in a schema of their own, whose
// name wants quotes.
func TestConformanceInSchema(t *testing.T) {
	desttest.Run(t, func(t *testing.T) desttest.Harness { return newHarness(t, `Or"ders'`).Harness })
}

type harness struct {
	desttest.Harness
	dsn    string
	schema string
	raw    *pgx.Conn // somebody else's, who looks and meddles
	faults injector
}

func newHarness(t *testing.T, schema string) *harness {
	t.Helper()
	h := &harness{dsn: postgrestest.Start(t), schema: schema}
	h.raw = h.connect(t)
	h.Harness = desttest.Harness{
		Open: func(t *testing.T, application string, adopt bool) kinetl.Destination {
			d := h.open(t, Options{Application: application, Adopt: adopt})
			d.sabotage, d.loseCommit = h.faults.next, h.faults.afterCommit
			return d
		},
		Read: h.read,
		AddColumn: func(t *testing.T, table, name, typ string, notNull bool) {
			if notNull {
				typ += " NOT NULL DEFAULT 0"
			}
			h.exec(t, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", h.table(table), quote(name), typ))
			if notNull {
				h.exec(t, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT", h.table(table), quote(name)))
			}
		},
		Unalterable: func(t *testing.T, table, column string) {
			h.exec(t, fmt.Sprintf("CREATE VIEW pin AS SELECT %s FROM %s", quote(column), h.table(table)))
		},
		FailStatement: h.faults.fail,
		LoseCommit:    h.faults.lose,
	}
	return h
}

// connect is a session of somebody else.
func (h *harness) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, h.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(ctx) })
	return conn
}

// open makes a Destination, which the caller closes.
func (h *harness) open(t *testing.T, o Options) *Destination {
	t.Helper()
	o.URL, o.Schema = h.dsn, h.schema
	d, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (h *harness) table(table string) string {
	return quote(tableName(h.schema)) + "." + quote(tableName(table))
}

func (h *harness) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := h.raw.Exec(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// text is the one value that a query gives, as text.
func (h *harness) text(t *testing.T, query string, args ...any) string {
	t.Helper()
	var text string
	if err := h.raw.QueryRow(context.Background(), query, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return text
}

func (h *harness) query(t *testing.T, each func(rows pgx.Rows) error, query string, args ...any) {
	t.Helper()
	rows, err := h.raw.Query(context.Background(), query, args...)
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

// catalogueNames are the columns of a table in the catalogue, by the engine's names.
func (h *harness) catalogueNames(t *testing.T, table string) map[string]string {
	names := map[string]string{}
	h.query(t, func(rows pgx.Rows) error {
		var c column
		var comment string
		err := rows.Scan(&c.name, &c.typ, &c.oid, &comment)
		c.identify(comment)
		names[kinetl.Fold(c.Name)] = c.name
		return err
	}, `SELECT attname, format_type(atttypid, atttypmod), atttypid, coalesce(col_description(attrelid, attnum), '') FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped`, h.table(table))
	return names
}

// rendered reads a column as desttest.Text renders its class.
func rendered(c kinetl.Column, name string) string {
	if c.Class == kinetl.Timestamp {
		return fmt.Sprintf(`to_char(%s AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`, quote(name))
	}
	return quote(name) + "::text"
}

func (h *harness) read(t *testing.T, table string, schema kinetl.Schema) desttest.Contents {
	t.Helper()
	out := desttest.Contents{Watermarks: map[kinetl.ShardID]kinetl.Position{}}
	if len(schema) > 0 {
		names := h.catalogueNames(t, table)
		var columns []string
		for _, c := range schema {
			columns = append(columns, rendered(c, names[kinetl.Fold(c.Name)]))
		}
		h.query(t, func(rows pgx.Rows) error {
			values := make([]*string, len(schema))
			into := make([]any, len(schema))
			for i := range values {
				into[i] = &values[i]
			}
			err := rows.Scan(into...)
			row := desttest.Row{Cells: map[string]string{}}
			for i, v := range values {
				if v == nil {
					continue
				}
				text := *v
				if schema[i].Class == kinetl.Double {
					f, _ := strconv.ParseFloat(text, 64)
					text = kinetl.FormatDouble(f)
				}
				row.Cells[schema[i].Name] = text
			}
			out.Rows = append(out.Rows, row)
			return err
		}, "SELECT "+strings.Join(columns, ", ")+" FROM "+h.table(table)+" ORDER BY ctid")
	}
	state := func(name string) string { return quote(tableName(h.schema)) + "." + quote(name) }
	h.query(t, func(rows pgx.Rows) error {
		var l desttest.DeadLetter
		var sub string
		var arrived, at *time.Time
		err := rows.Scan(&l.Shard.Stream, &l.Shard.Created, &l.Shard.Shard, &l.Sequence, &sub, &arrived, &l.PartitionKey, &l.Reason, &l.Payload, &at)
		l.Sub, _ = strconv.ParseUint(sub, 10, 64)
		if arrived != nil {
			l.Arrived = *arrived
		}
		if at != nil {
			l.At = *at
		}
		out.DeadLetters = append(out.DeadLetters, l)
		return err
	}, `SELECT stream, stream_created, shard, sequence, sub_sequence::text, arrival, partition_key, reason, payload, "at" FROM `+state(deadLetters(table))+" ORDER BY ctid")
	h.query(t, func(rows pgx.Rows) error {
		var s kinetl.ShardID
		var through string
		err := rows.Scan(&s.Stream, &s.Created, &s.Shard, &through)
		out.Watermarks[s] = kinetl.Position(through)
		return err
	}, "SELECT stream, stream_created, shard, through FROM "+state(watermarksTable)+" WHERE table_name = $1", tableName(table))
	h.query(t, func(rows pgx.Rows) error {
		var g desttest.Gap
		var from, to string
		err := rows.Scan(&g.Shard.Stream, &g.Shard.Created, &g.Shard.Shard, &from, &to, &g.Reason, &g.At)
		g.From, g.To = kinetl.Position(from), kinetl.Position(to)
		out.Gaps = append(out.Gaps, g)
		return err
	}, `SELECT stream, stream_created, shard, from_position, to_position, reason, "at" FROM `+state(gapsTable)+" WHERE table_name = $1 ORDER BY ctid", tableName(table))
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
