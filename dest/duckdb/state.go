package duckdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kinetl/kinetl"
)

const (
	watermarksTable = "_kinetl_watermarks"
	gapsTable       = "_kinetl_gaps"
	sinkComment     = "kinetl: sink "
)

func asRefused(err error) (*refusedError, bool) {
	var e *refusedError
	ok := errors.As(err, &e)
	return e, ok
}

// ensureState makes the namespace and the state tables, once per Destination.
func (d *Destination) ensureState(ctx context.Context) error {
	d.mu.Lock()
	ready := d.ready
	d.mu.Unlock()
	if ready {
		return nil
	}
	for conflicts := 0; ; conflicts++ {
		err := d.transact(ctx, func(t *tx) error { return t.createState(ctx) })
		if err == nil {
			break
		}
		if !isConflict(err) || conflicts == conflictTries {
			return fmt.Errorf("make the state tables: %w", err)
		}
		if err := wait(ctx, time.Duration(conflicts)*time.Millisecond); err != nil {
			return fmt.Errorf("make the state tables: %w", err)
		}
	}
	d.mu.Lock()
	d.ready = true
	d.mu.Unlock()
	return nil
}

// createState also names the sink. Its random id is the comment of the watermark
// table as well as a column of its rows: the comment, because two first claims at
// once could otherwise choose two ids, while the catalogue lets only one of two
// transactions through; the rows, because a copy of the table loses its comment.
func (t *tx) createState(ctx context.Context) error {
	if sink, err := t.sink(ctx); err != nil || sink != "" {
		return err
	}
	for _, statement := range []string{
		"CREATE SCHEMA IF NOT EXISTS " + t.d.schema(),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
			application VARCHAR NOT NULL, table_name VARCHAR, stream VARCHAR, stream_created BIGINT, shard VARCHAR,
			through VARCHAR NOT NULL, sink VARCHAR NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
			PRIMARY KEY (table_name, stream, stream_created, shard))`, t.d.table(watermarksTable)),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
			application VARCHAR, table_name VARCHAR, stream VARCHAR, stream_created BIGINT, shard VARCHAR,
			from_position VARCHAR, to_position VARCHAR, reason VARCHAR, "at" TIMESTAMPTZ)`, t.d.table(gapsTable)),
	} {
		if _, err := t.exec(ctx, statement); err != nil {
			return err
		}
	}
	var id sql.NullString
	err := t.query(ctx, func(scan func(...any) error) error { return scan(&id) },
		"SELECT max(sink) FROM "+t.d.table(watermarksTable))
	if err != nil {
		return err
	}
	if !id.Valid || strings.Trim(id.String, "0123456789abcdef") != "" {
		random := make([]byte, 8)
		_, _ = rand.Read(random) // never fails
		id.String = hex.EncodeToString(random)
	}
	_, err = t.exec(ctx, fmt.Sprintf("COMMENT ON TABLE %s IS '%s%s'", t.d.table(watermarksTable), sinkComment, id.String))
	return err
}

// sink is the id of this set of tables, or nothing before it has one.
func (t *tx) sink(ctx context.Context) (id string, err error) {
	err = t.query(ctx, func(scan func(...any) error) error {
		var schemaName string
		var comment sql.NullString
		if err := scan(&schemaName, &comment); err != nil {
			return err
		}
		if kinetl.Fold(schemaName) == kinetl.Fold(t.d.opts.Namespace) {
			id = strings.TrimPrefix(comment.String, sinkComment)
		}
		return nil
	}, "SELECT schema_name, comment FROM duckdb_tables() WHERE database_name = current_database() AND table_name = ?", watermarksTable)
	if err != nil {
		return "", fmt.Errorf("read the sink's id: %w", err)
	}
	return id, nil
}

// watermarks implements kinetl.Watermarks.
type watermarks struct {
	*tx
	table string
	sink  string // of rows that are made
}

func (t *tx) rules(table, sink string) kinetl.WatermarkRules {
	return kinetl.WatermarkRules{Rows: watermarks{t, table, sink}, Table: table, Application: t.d.opts.Application, Adopt: t.d.opts.Adopt}
}

// Read: the table's name is folded as the catalogue does it, or Orders and orders would each have watermarks for one table.
func (w watermarks) Read(ctx context.Context, shards []kinetl.ShardID) (map[kinetl.ShardID]kinetl.Watermark, error) {
	out := map[kinetl.ShardID]kinetl.Watermark{}
	if len(shards) == 0 {
		return out, nil
	}
	args := []any{kinetl.Fold(w.table)}
	for _, s := range shards {
		args = append(args, s.Shard)
	}
	err := w.query(ctx, func(scan func(...any) error) error {
		var s kinetl.ShardID
		var row kinetl.Watermark
		var through string
		if err := scan(&row.Application, &s.Stream, &s.Created, &s.Shard, &through); err != nil {
			return err
		}
		row.Through = kinetl.Position(through)
		out[s] = row
		return nil
	}, fmt.Sprintf("SELECT application, stream, stream_created, shard, through FROM %s WHERE table_name = ? AND shard IN (?%s)",
		w.d.table(watermarksTable), strings.Repeat(", ?", len(shards)-1)), args...)
	if err != nil {
		return nil, fmt.Errorf("read the watermarks of %s: %w", w.table, err)
	}
	return out, nil
}

// Insert: where another worker is making the same row, DuckDB fails this statement at
// once, and the claim as a whole.
func (w watermarks) Insert(ctx context.Context, s kinetl.ShardID, through kinetl.Position) (kinetl.Watermark, error) {
	_, err := w.exec(ctx, fmt.Sprintf("INSERT INTO %s (application, table_name, stream, stream_created, shard, through, sink, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", w.d.table(watermarksTable)),
		w.d.opts.Application, kinetl.Fold(w.table), s.Stream, s.Created, s.Shard, string(through), w.sink, w.d.opts.Now().UTC())
	if err != nil {
		return kinetl.Watermark{}, fmt.Errorf("insert the watermark of %s: %w", s, err)
	}
	return kinetl.Watermark{Application: w.d.opts.Application, Through: through}, nil
}

// Set: that the row was at from is known from an earlier statement of this transaction;
// the count is checked all the same, so that no fault in that reasoning moves a
// watermark without its rows.
func (w watermarks) Set(ctx context.Context, s kinetl.ShardID, from kinetl.Watermark, to kinetl.Position) error {
	n, err := w.exec(ctx, fmt.Sprintf(`UPDATE %s SET application = ?, through = ?, updated_at = ?
		WHERE table_name = ? AND stream = ? AND stream_created = ? AND shard = ? AND application = ? AND through = ?`, w.d.table(watermarksTable)),
		w.d.opts.Application, string(to), w.d.opts.Now().UTC(), kinetl.Fold(w.table), s.Stream, s.Created, s.Shard, from.Application, string(from.Through))
	if err != nil {
		return fmt.Errorf("move the watermark of %s: %w", s, err)
	}
	if n != 1 {
		return fmt.Errorf("move the watermark of %s: %d rows at %s, want 1", s, n, from.Through)
	}
	return nil
}

func (w watermarks) RecordGap(ctx context.Context, m kinetl.Move, reason string) error {
	_, err := w.exec(ctx, fmt.Sprintf("INSERT INTO %s (application, table_name, stream, stream_created, shard, from_position, to_position, reason, \"at\") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", w.d.table(gapsTable)),
		w.d.opts.Application, kinetl.Fold(w.table), m.Shard.Stream, m.Shard.Created, m.Shard.Shard, string(m.From), string(m.To), reason, w.d.opts.Now().UTC())
	if err != nil {
		return fmt.Errorf("record the gap of %s: %w", m.Shard, err)
	}
	return nil
}
