package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/kinetl/kinetl"
)

// deadLetterColumns are the columns of a dead-letter table, in the order in which
// appendDeadLetter writes them.
var deadLetterColumns = []struct{ name, typ string }{
	{"stream", "text"},
	{"stream_created", "bigint"},
	{"shard", "text"},
	{"sequence", "text"},
	{"sub_sequence", "numeric(20,0)"}, // of 64 bits without sign
	{"arrival", "timestamp with time zone"},
	{"partition_key", "text"},
	{"reason", "text"},
	{"payload", "bytea"},
	{"at", "timestamp with time zone"},
}

// createDeadLetters makes the dead-letter table, if it is missing.
func (t *tx) createDeadLetters(ctx context.Context, table string) error {
	name := deadLetters(table)
	r, err := t.relation(ctx, name)
	if err != nil || r.oid != 0 {
		return err
	}
	var parts []string
	for _, c := range deadLetterColumns {
		parts = append(parts, quote(c.name)+" "+c.typ)
	}
	if _, err := t.exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s)", t.d.table(name), strings.Join(parts, ", "))); err != nil {
		return fmt.Errorf("create table %s: %w", name, err)
	}
	return nil
}

// copyDeadLetters stores the parts' dead letters.
func (t *tx) copyDeadLetters(ctx context.Context, table string, parts []kinetl.Part) error {
	name := deadLetters(table)
	r, err := t.relation(ctx, name)
	if err != nil {
		return err
	}
	if r.oid == 0 {
		return &kinetl.SchemaChangedError{Table: table, Detail: fmt.Sprintf("table %s is gone", name)}
	}
	var names []string
	for _, want := range deadLetterColumns {
		names = append(names, quote(want.name))
		have := "missing"
		for _, c := range r.columns {
			if c.name == want.name {
				have = c.typ
			}
		}
		if have != want.typ {
			return fmt.Errorf("column %q of table %s is %s, not %s: put it right, nothing is loaded before", want.name, name, have, want.typ)
		}
	}
	part, letter := 0, 0
	next := func(dst []byte) []byte {
		for part < len(parts) && letter == len(parts[part].DeadLetters) {
			part, letter = part+1, 0
		}
		if part == len(parts) {
			return dst
		}
		letter++
		return appendDeadLetter(dst, parts[part].Shard, &parts[part].DeadLetters[letter-1])
	}
	if err := t.copyFrom(ctx, fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT binary)", t.d.table(name), strings.Join(names, ", ")), newCopyReader(next)); err != nil {
		return fmt.Errorf("copy dead letters: %w", err)
	}
	return nil
}

func appendDeadLetter(dst []byte, shard kinetl.ShardID, l *kinetl.DeadLetter) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(deadLetterColumns)))
	dst = appendBytes(dst, storable(shard.Stream))
	dst = append64(dst, uint64(shard.Created))
	dst = appendBytes(dst, storable(shard.Shard))
	dst = appendBytes(dst, storable(l.Sequence))
	at := len(dst)
	dst = appendDecimal(append(dst, 0, 0, 0, 0), decimal128.New(0, l.Sub))
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	dst = appendInstant(dst, l.Arrived)
	dst = appendBytes(dst, storable(l.PartitionKey))
	dst = appendBytes(dst, storable(l.Reason))
	dst = appendBytes(dst, l.Payload)
	return appendInstant(dst, l.At)
}

func appendInstant(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(dst, null...)
	}
	return append64(dst, uint64(sinceEpoch(t.UnixMicro())))
}

// storable is text without what PostgreSQL refuses in text: a dead letter must not be
// refused. Payloads are bytes and stay as they are.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
