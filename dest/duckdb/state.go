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

// endedElsewhere is the reason of the gap that Claim records when another system
// finished a shard that this table held up to an earlier position.
const endedElsewhere = "finished by another system"

// mark is a stored watermark.
type mark struct {
	application string
	through     kinetl.Position
}

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

// marks reads the watermarks of the given shards. The table's name is folded as the
// catalogue does, or Orders and orders would each have watermarks for one table.
func (t *tx) marks(ctx context.Context, table string, shards []kinetl.ShardID) (map[kinetl.ShardID]mark, error) {
	out := map[kinetl.ShardID]mark{}
	if len(shards) == 0 {
		return out, nil
	}
	args := []any{kinetl.Fold(table)}
	for _, s := range shards {
		args = append(args, s.Shard)
	}
	err := t.query(ctx, func(scan func(...any) error) error {
		var s kinetl.ShardID
		var m mark
		var through string
		if err := scan(&m.application, &s.Stream, &s.Created, &s.Shard, &through); err != nil {
			return err
		}
		m.through = kinetl.Position(through)
		out[s] = m
		return nil
	}, fmt.Sprintf("SELECT application, stream, stream_created, shard, through FROM %s WHERE table_name = ? AND shard IN (?%s)",
		t.d.table(watermarksTable), strings.Repeat(", ?", len(shards)-1)), args...)
	if err != nil {
		return nil, fmt.Errorf("read the watermarks of %s: %w", table, err)
	}
	return out, nil
}

func (t *tx) insertMark(ctx context.Context, table, sink string, s kinetl.ShardID, through kinetl.Position) error {
	_, err := t.exec(ctx, fmt.Sprintf("INSERT INTO %s (application, table_name, stream, stream_created, shard, through, sink, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", t.d.table(watermarksTable)),
		t.d.opts.Application, kinetl.Fold(table), s.Stream, s.Created, s.Shard, string(through), sink, t.d.opts.Now().UTC())
	if err != nil {
		return fmt.Errorf("insert the watermark of %s: %w", s, err)
	}
	return nil
}

// setMark moves a watermark that is exactly at from. That it was is known from an
// earlier statement of this transaction; the count is checked all the same, so that
// no fault in that reasoning moves a watermark without its rows.
func (t *tx) setMark(ctx context.Context, table string, s kinetl.ShardID, from, to kinetl.Position) error {
	n, err := t.exec(ctx, fmt.Sprintf(`UPDATE %s SET application = ?, through = ?, updated_at = ?
		WHERE table_name = ? AND stream = ? AND stream_created = ? AND shard = ? AND through = ?`, t.d.table(watermarksTable)),
		t.d.opts.Application, string(to), t.d.opts.Now().UTC(), kinetl.Fold(table), s.Stream, s.Created, s.Shard, string(from))
	if err != nil {
		return fmt.Errorf("move the watermark of %s: %w", s, err)
	}
	if n != 1 {
		return fmt.Errorf("move the watermark of %s: %d rows at %s, want 1", s, n, from)
	}
	return nil
}

func (t *tx) recordGap(ctx context.Context, table string, m kinetl.Move, reason string) error {
	_, err := t.exec(ctx, fmt.Sprintf("INSERT INTO %s (application, table_name, stream, stream_created, shard, from_position, to_position, reason, \"at\") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", t.d.table(gapsTable)),
		t.d.opts.Application, kinetl.Fold(table), m.Shard.Stream, m.Shard.Created, m.Shard.Shard, string(m.From), string(m.To), reason, t.d.opts.Now().UTC())
	if err != nil {
		return fmt.Errorf("record the gap of %s: %w", m.Shard, err)
	}
	return nil
}

// owns refuses a watermark of another application (R1).
func (d *Destination) owns(m mark, exists bool, table string, s kinetl.ShardID) error {
	if !exists || m.application == d.opts.Application || d.opts.Adopt {
		return nil
	}
	return &kinetl.OtherApplicationError{Shard: s, Table: table, Owner: m.application, Mine: d.opts.Application}
}
