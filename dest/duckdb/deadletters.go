package duckdb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/kinetl/kinetl"
)

var instant = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}

// deadLetterColumns are the columns of a dead-letter table, in the order in which
// insertDeadLetters fills them.
var deadLetterColumns = []struct {
	name, typ string
	arrow     arrow.DataType
}{
	{"stream", "VARCHAR", arrow.BinaryTypes.String},
	{"stream_created", "BIGINT", arrow.PrimitiveTypes.Int64},
	{"shard", "VARCHAR", arrow.BinaryTypes.String},
	{"sequence", "VARCHAR", arrow.BinaryTypes.String},
	{"sub_sequence", "UBIGINT", arrow.PrimitiveTypes.Uint64},
	{"arrival", "TIMESTAMPTZ", instant},
	{"partition_key", "VARCHAR", arrow.BinaryTypes.String},
	{"reason", "VARCHAR", arrow.BinaryTypes.String},
	{"payload", "BLOB", arrow.BinaryTypes.Binary},
	{"at", "TIMESTAMPTZ", instant},
}

func deadLetters(table string) string { return table + "_dead_letters" }

func (t *tx) createDeadLetters(ctx context.Context, table string) error {
	var parts []string
	for _, c := range deadLetterColumns {
		parts = append(parts, quote(c.name)+" "+c.typ)
	}
	_, err := t.exec(ctx, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s)", t.d.table(deadLetters(table)), strings.Join(parts, ", ")))
	if err != nil {
		return fmt.Errorf("create table %s: %w", deadLetters(table), err)
	}
	return nil
}

func (t *tx) insertDeadLetters(ctx context.Context, table string, parts []kinetl.Part) error {
	record := deadLetterRecord(parts)
	defer record.Release()
	if record.NumRows() == 0 {
		return nil
	}
	var names, values []string
	for i, c := range deadLetterColumns {
		names = append(names, quote(c.name))
		values = append(values, fmt.Sprintf("CAST(%s AS %s)", source(i), c.typ))
	}
	err := t.feed(ctx, []arrow.RecordBatch{record}, func(from string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", t.d.table(deadLetters(table)), strings.Join(names, ", "), strings.Join(values, ", "), from)
	})
	if err != nil {
		return fmt.Errorf("insert dead letters: %w", err)
	}
	return nil
}

func deadLetterRecord(parts []kinetl.Part) arrow.RecordBatch {
	var fields []arrow.Field
	for i, c := range deadLetterColumns {
		fields = append(fields, arrow.Field{Name: source(i), Type: c.arrow, Nullable: true})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	text := func(i int, s string) {
		// The engine refuses text that is not UTF-8, and a dead letter must not be
		// refused. Payloads are bytes and stay as they are.
		b.Field(i).(*array.StringBuilder).Append(strings.ToValidUTF8(s, "\uFFFD"))
	}
	for _, p := range parts {
		for _, l := range p.DeadLetters {
			text(0, p.Shard.Stream)
			b.Field(1).(*array.Int64Builder).Append(p.Shard.Created)
			text(2, p.Shard.Shard)
			text(3, l.Sequence)
			b.Field(4).(*array.Uint64Builder).Append(l.Sub)
			appendInstant(b.Field(5).(*array.TimestampBuilder), l.Arrived)
			text(6, l.PartitionKey)
			text(7, l.Reason)
			b.Field(8).(*array.BinaryBuilder).Append(l.Payload)
			appendInstant(b.Field(9).(*array.TimestampBuilder), l.At)
		}
	}
	return b.NewRecordBatch()
}

func appendInstant(b *array.TimestampBuilder, t time.Time) {
	if t.IsZero() {
		b.AppendNull()
		return
	}
	b.Append(arrow.Timestamp(t.UnixMicro()))
}
