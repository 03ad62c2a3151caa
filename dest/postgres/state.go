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

// endedElsewhere is the reason of the gap that Claim records when another system
// finished a shard that this table held up to an earlier position.
const endedElsewhere = "finished by another system"

// mark is a stored watermark.
type mark struct {
	application string
	through     kinetl.Position
}

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

// marks reads the watermarks of the given shards.
func (t *tx) marks(ctx context.Context, table string, shards []kinetl.ShardID) (map[kinetl.ShardID]mark, error) {
	out := map[kinetl.ShardID]mark{}
	if len(shards) == 0 {
		return out, nil
	}
	names := make([]string, len(shards))
	for i, s := range shards {
		names[i] = s.Shard
	}
	err := t.query(ctx, func(scan func(...any) error) error {
		var s kinetl.ShardID
		var m mark
		err := scan(&m.application, &s.Stream, &s.Created, &s.Shard, &m.through)
		out[s] = m
		return err
	}, fmt.Sprintf("SELECT application, stream, stream_created, shard, through FROM %s WHERE table_name = $1 AND shard = ANY($2)", t.d.table(watermarksTable)),
		tableName(table), names)
	if err != nil {
		return nil, fmt.Errorf("read the watermarks of %s: %w", table, err)
	}
	return out, nil
}

// insertMark makes a watermark row unless there is one, and returns what is stored: an
// insert of another worker that came first has committed when this one has waited for
// it, and the next statement sees it (R6).
func (t *tx) insertMark(ctx context.Context, table, sink string, s kinetl.ShardID, through kinetl.Position) (mark, error) {
	n, err := t.exec(ctx, fmt.Sprintf(`INSERT INTO %s (application, table_name, stream, stream_created, shard, through, sink, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp()) ON CONFLICT (table_name, stream, stream_created, shard) DO NOTHING`, t.d.table(watermarksTable)),
		t.d.opts.Application, tableName(table), s.Stream, s.Created, s.Shard, string(through), sink)
	if err != nil {
		return mark{}, fmt.Errorf("insert the watermark of %s: %w", s, err)
	}
	if n == 1 {
		return mark{t.d.opts.Application, through}, nil
	}
	marks, err := t.marks(ctx, table, []kinetl.ShardID{s})
	if err != nil {
		return mark{}, err
	}
	m, ok := marks[s]
	if !ok {
		return mark{}, fmt.Errorf("insert the watermark of %s: another row is in its way and gone", s)
	}
	return m, nil
}

// change is one watermark to move.
type change struct {
	shard   kinetl.ShardID
	from    mark
	through kinetl.Position
}

// setMarks moves watermarks that are exactly where an earlier statement saw them, in
// the order given. Another transaction may have moved one since: this one waited for
// it at the row, finds it no longer fits, and fails as a whole (R11).
func (t *tx) setMarks(ctx context.Context, table string, changes []change) error {
	batch := &pgx.Batch{}
	for _, c := range changes {
		if t.sabotaged() {
			batch.Queue(faulty)
			continue
		}
		batch.Queue(fmt.Sprintf(`UPDATE %s SET application = $1, through = $2, updated_at = clock_timestamp()
			WHERE table_name = $3 AND stream = $4 AND stream_created = $5 AND shard = $6 AND application = $7 AND through = $8`, t.d.table(watermarksTable)),
			t.d.opts.Application, string(c.through), tableName(table), c.shard.Stream, c.shard.Created, c.shard.Shard, c.from.application, string(c.from.through))
	}
	results := t.conn.SendBatch(ctx, batch)
	for _, c := range changes {
		tag, err := results.Exec()
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("%d rows at %s, want 1: another worker has moved it", tag.RowsAffected(), c.from.through)
		}
		if err != nil {
			_ = results.Close() // tells the same
			return fmt.Errorf("move the watermark of %s: %w", c.shard, oneLine(err))
		}
	}
	return oneLine(results.Close())
}

func (t *tx) recordGap(ctx context.Context, table string, m kinetl.Move, reason string) error {
	_, err := t.exec(ctx, fmt.Sprintf(`INSERT INTO %s (application, table_name, stream, stream_created, shard, from_position, to_position, reason, "at")
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())`, t.d.table(gapsTable)),
		t.d.opts.Application, tableName(table), m.Shard.Stream, m.Shard.Created, m.Shard.Shard, string(m.From), string(m.To), storable(reason))
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
