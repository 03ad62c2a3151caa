package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl"
)

const (
	watermarksTable = "_kinetl_watermarks"
	gapsTable       = "_kinetl_gaps"
	sinkComment     = "kinetl: sink "
)

// ensureState makes the schema and the state tables, once per Destination.
func (d *Destination) ensureState(ctx context.Context) error {
	d.mu.Lock()
	ready := d.ready
	d.mu.Unlock()
	if ready {
		return nil
	}
	if err := d.transact(ctx, func(t *tx) error { return t.createState(ctx) }); err != nil {
		return fmt.Errorf("make the state tables in schema %s: %w", d.opts.Schema, err)
	}
	d.mu.Lock()
	d.ready = true
	d.mu.Unlock()
	return nil
}

// createState also names the sink. Its random id is the comment of the watermark
// table as well as a column of its rows, since a copy of the table loses its comment.
// What exists is looked for first: "IF NOT EXISTS" asks for the right to make things
// even where nothing is made.
func (t *tx) createState(ctx context.Context) error {
	if err := t.lock(ctx, "state", t.d.opts.Schema); err != nil {
		return err
	}
	found := map[string]bool{}
	err := t.query(ctx, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		found[name] = true
		return err
	}, `SELECT '' FROM pg_namespace WHERE nspname = $1 UNION ALL
		SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname IN ($2, $3)`,
		t.d.opts.Schema, watermarksTable, gapsTable)
	if err != nil {
		return err
	}
	for _, make := range []struct{ name, statement string }{
		{"", "CREATE SCHEMA " + quote(t.d.opts.Schema)},
		{watermarksTable, fmt.Sprintf(`CREATE TABLE %s (
			application text NOT NULL, table_name text, stream text, stream_created bigint, shard text,
			through text NOT NULL, sink text NOT NULL, updated_at timestamptz NOT NULL,
			PRIMARY KEY (table_name, stream, stream_created, shard))`, t.d.table(watermarksTable))},
		{gapsTable, fmt.Sprintf(`CREATE TABLE %s (
			application text, table_name text, stream text, stream_created bigint, shard text,
			from_position text, to_position text, reason text, "at" timestamptz)`, t.d.table(gapsTable))},
	} {
		if found[make.name] {
			continue
		}
		if _, err := t.exec(ctx, make.statement); err != nil {
			return err
		}
	}
	comment, id, err := t.sinkIDs(ctx)
	if err != nil || comment != "" {
		return err
	}
	if id == "" {
		random := make([]byte, 8)
		_, _ = rand.Read(random) // never fails
		id = hex.EncodeToString(random)
	}
	_, err = t.exec(ctx, fmt.Sprintf("COMMENT ON TABLE %s IS %s", t.d.table(watermarksTable), literal(sinkComment+id)))
	return err
}

// sinkIDs is the id of this set of tables as the comment has it, and as the rows do.
func (t *tx) sinkIDs(ctx context.Context) (comment, rows string, err error) {
	err = t.query(ctx, func(scan func(...any) error) error { return scan(&comment, &rows) },
		fmt.Sprintf(`SELECT coalesce(obj_description($1::regclass, 'pg_class'), ''), coalesce((SELECT max(sink) FROM %s), '')`, t.d.table(watermarksTable)),
		t.d.table(watermarksTable))
	if err != nil {
		return "", "", fmt.Errorf("read the sink's id: %w", err)
	}
	id, ours := strings.CutPrefix(comment, sinkComment)
	if !ours {
		id = ""
	}
	return id, rows, nil
}

// sink is the id of this set of tables. Somebody may have written another comment.
func (t *tx) sink(ctx context.Context) (string, error) {
	comment, rows, err := t.sinkIDs(ctx)
	switch {
	case err != nil || comment != "":
		return comment, err
	case rows == "":
		return "", fmt.Errorf("the comment of table %s, which held the sink's id, is gone: start again", watermarksTable)
	}
	return rows, nil
}

// lock takes an advisory lock until the transaction ends.
func (t *tx) lock(ctx context.Context, of ...string) error {
	if _, err := t.exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey(of...)); err != nil {
		return fmt.Errorf("wait for another worker that changes the same: %w", err)
	}
	return nil
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

func (w watermarks) Read(ctx context.Context, shards []kinetl.ShardID) (map[kinetl.ShardID]kinetl.Watermark, error) {
	out := map[kinetl.ShardID]kinetl.Watermark{}
	if len(shards) == 0 {
		return out, nil
	}
	names := make([]string, len(shards))
	for i, s := range shards {
		names[i] = s.Shard
	}
	err := w.query(ctx, func(scan func(...any) error) error {
		var s kinetl.ShardID
		var row kinetl.Watermark
		err := scan(&row.Application, &s.Stream, &s.Created, &s.Shard, &row.Through)
		out[s] = row
		return err
	}, fmt.Sprintf("SELECT application, stream, stream_created, shard, through FROM %s WHERE table_name = $1 AND shard = ANY($2)", w.d.table(watermarksTable)),
		tableName(w.table), names)
	if err != nil {
		return nil, fmt.Errorf("read the watermarks of %s: %w", w.table, err)
	}
	return out, nil
}

// Insert: an insert of another worker that came first has committed when this one has
// waited for it, and the next statement sees it (R6).
func (w watermarks) Insert(ctx context.Context, s kinetl.ShardID, through kinetl.Position) (kinetl.Watermark, error) {
	n, err := w.exec(ctx, fmt.Sprintf(`INSERT INTO %s (application, table_name, stream, stream_created, shard, through, sink, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp()) ON CONFLICT (table_name, stream, stream_created, shard) DO NOTHING`, w.d.table(watermarksTable)),
		w.d.opts.Application, tableName(w.table), s.Stream, s.Created, s.Shard, string(through), w.sink)
	if err != nil {
		return kinetl.Watermark{}, fmt.Errorf("insert the watermark of %s: %w", s, err)
	}
	if n == 1 {
		return kinetl.Watermark{Application: w.d.opts.Application, Through: through}, nil
	}
	rows, err := w.Read(ctx, []kinetl.ShardID{s})
	if err != nil {
		return kinetl.Watermark{}, err
	}
	row, ok := rows[s]
	if !ok {
		return kinetl.Watermark{}, fmt.Errorf("insert the watermark of %s: another row is in its way and gone", s)
	}
	return row, nil
}

func (w watermarks) Set(ctx context.Context, s kinetl.ShardID, from kinetl.Watermark, to kinetl.Position) error {
	return w.setAll(ctx, []kinetl.MovedWatermark{{Shard: s, From: from, To: to}})
}

// setAll moves watermarks that are exactly where an earlier statement saw them, in the
// order given. Another transaction may have moved one since: this one waited for it at
// the row, finds it no longer fits, and fails as a whole (R11).
func (w watermarks) setAll(ctx context.Context, moved []kinetl.MovedWatermark) error {
	batch := &pgx.Batch{}
	for _, m := range moved {
		if w.sabotaged() {
			batch.Queue(faulty)
			continue
		}
		batch.Queue(fmt.Sprintf(`UPDATE %s SET application = $1, through = $2, updated_at = clock_timestamp()
			WHERE table_name = $3 AND stream = $4 AND stream_created = $5 AND shard = $6 AND application = $7 AND through = $8`, w.d.table(watermarksTable)),
			w.d.opts.Application, string(m.To), tableName(w.table), m.Shard.Stream, m.Shard.Created, m.Shard.Shard, m.From.Application, string(m.From.Through))
	}
	results := w.conn.SendBatch(ctx, batch)
	for _, m := range moved {
		tag, err := results.Exec()
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("%d rows at %s, want 1: another worker has moved it", tag.RowsAffected(), m.From.Through)
		}
		if err != nil {
			_ = results.Close() // tells the same
			return fmt.Errorf("move the watermark of %s: %w", m.Shard, oneLine(err))
		}
	}
	return oneLine(results.Close())
}

func (w watermarks) RecordGap(ctx context.Context, m kinetl.Move, reason string) error {
	_, err := w.exec(ctx, fmt.Sprintf(`INSERT INTO %s (application, table_name, stream, stream_created, shard, from_position, to_position, reason, "at")
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())`, w.d.table(gapsTable)),
		w.d.opts.Application, tableName(w.table), m.Shard.Stream, m.Shard.Created, m.Shard.Shard, string(m.From), string(m.To), storable(reason))
	if err != nil {
		return fmt.Errorf("record the gap of %s: %w", m.Shard, err)
	}
	return nil
}
