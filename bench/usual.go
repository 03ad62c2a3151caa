package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/duckdb/duckdb-go/v2"
	"golang.org/x/sync/errgroup"
)

// This file is the other side: programs as a competent user writes them today with
// the plain SDK, encoding/json and the usual builders and appenders, at the settings
// that measured best: pages of 10,000 records, a goroutine per shard, connections
// kept for each, HTTP/1.1, large batches.

func sdkClient(ctx context.Context, p place) (*kinesis.Client, error) {
	pem, err := os.ReadFile(p.Bundle)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion("us-east-1"), config.WithCustomCABundle(strings.NewReader(string(pem))),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("a", "b", "")),
		// The SDK closes a request's body when the answer begins, and net/http, which may
		// still be reading it, then closes the connection. Three attempts are too few.
		config.WithRetryMaxAttempts(10),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = 2 * shards
			t.ForceAttemptHTTP2 = false
			t.Protocols = new(http.Protocols)
			t.Protocols.SetHTTP1(true)
			t.TLSClientConfig.NextProtos = []string{"http/1.1"}
		})))
	if err != nil {
		return nil, err
	}
	return kinesis.NewFromConfig(cfg, func(o *kinesis.Options) { o.BaseEndpoint = &p.URL }), nil
}

// sdkLoop reads every shard to its tip, each in a goroutine, and calls page for
// each answer with the number of its shard.
func sdkLoop(ctx context.Context, p place, stream string, page func(shard int, records []types.Record) error) (tally, error) {
	client, err := sdkClient(ctx, p)
	if err != nil {
		return tally{}, err
	}
	list, err := client.ListShards(ctx, &kinesis.ListShardsInput{StreamName: &stream})
	if err != nil {
		return tally{}, err
	}
	var records, bytes atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i, shard := range list.Shards {
		g.Go(func() error {
			it, err := client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
				StreamName: &stream, ShardId: shard.ShardId, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
			})
			if err != nil {
				return err
			}
			for next := it.ShardIterator; next != nil; {
				out, err := client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: next, Limit: aws.Int32(10_000)})
				if err != nil {
					return err
				}
				for _, r := range out.Records {
					bytes.Add(int64(len(r.Data)))
				}
				records.Add(int64(len(out.Records)))
				if err := page(i, out.Records); err != nil {
					return err
				}
				if aws.ToInt64(out.MillisBehindLatest) == 0 {
					return nil
				}
				next = out.NextShardIterator
			}
			return nil
		})
	}
	err = g.Wait()
	return tally{records.Load(), bytes.Load()}, err
}

func sdkReader(ctx context.Context, p place, stream string) (tally, error) {
	return sdkLoop(ctx, p, stream, func(int, []types.Record) error { return nil })
}

// usualColumns is the columns of a record with their types, as a user would declare
// them; nested values are kept as JSON text.
func usualColumns(stream string) []arrow.Field {
	text, number, integer, boolean := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Int64, arrow.FixedWidthTypes.Boolean
	fields := map[string]arrow.DataType{"id": integer, "placed_at": text, "customer": text, "items": text, "total": number, "address": text, "comment": text}
	if stream == "256" {
		fields = map[string]arrow.DataType{"id": integer, "customer": text, "sku": text, "quantity": integer, "price": number, "currency": text, "paid": boolean, "note": text}
	}
	var out []arrow.Field
	for name, typ := range fields {
		out = append(out, arrow.Field{Name: name, Type: typ, Nullable: true})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// metadata columns, as kinetl writes them by default but for the id.
var metadataFields = []arrow.Field{
	{Name: "_kinesis_shard", Type: arrow.BinaryTypes.String}, {Name: "_kinesis_sequence", Type: arrow.BinaryTypes.String},
	{Name: "_kinesis_arrival", Type: arrow.FixedWidthTypes.Timestamp_us}, {Name: "_kinesis_partition_key", Type: arrow.BinaryTypes.String},
}

func usualArrow(ctx context.Context, p place, stream string) (tally, error) {
	fields := usualColumns(stream)
	schema := arrow.NewSchema(append(fields, metadataFields...), nil)
	builders := make([]*array.RecordBuilder, shards)
	for i := range builders {
		builders[i] = array.NewRecordBuilder(memory.DefaultAllocator, schema)
	}
	return sdkLoop(ctx, p, stream, func(shard int, records []types.Record) error {
		b := builders[shard]
		for _, r := range records {
			if err := appendUsual(b, fields, r, shard); err != nil {
				return err
			}
			if b.Field(0).Len() == batchRows {
				b.NewRecordBatch().Release()
			}
		}
		return nil
	})
}

func appendUsual(b *array.RecordBuilder, fields []arrow.Field, r types.Record, shard int) error {
	var row map[string]any
	if err := json.Unmarshal(r.Data, &row); err != nil {
		return err
	}
	for i, f := range fields {
		switch v := row[f.Name].(type) {
		case nil:
			b.Field(i).AppendNull()
		case string:
			b.Field(i).(*array.StringBuilder).Append(v)
		case bool:
			b.Field(i).(*array.BooleanBuilder).Append(v)
		case float64:
			if integers, ok := b.Field(i).(*array.Int64Builder); ok {
				integers.Append(int64(v))
			} else {
				b.Field(i).(*array.Float64Builder).Append(v)
			}
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			b.Field(i).(*array.StringBuilder).Append(string(text))
		}
	}
	n := len(fields)
	b.Field(n).(*array.StringBuilder).Append(fmt.Sprintf("shardId-%012d", shard))
	b.Field(n + 1).(*array.StringBuilder).Append(*r.SequenceNumber)
	b.Field(n + 2).(*array.TimestampBuilder).Append(arrow.Timestamp(r.ApproximateArrivalTimestamp.UnixMicro()))
	b.Field(n + 3).(*array.StringBuilder).Append(*r.PartitionKey)
	return nil
}

// usualDuckDB appends rows with DuckDB's appender, one connection and one lock, and
// flushes every 100,000 rows.
func usualDuckDB(ctx context.Context, p place, stream string) (tally, error) {
	folder, err := os.MkdirTemp("", "kinetl-bench")
	if err != nil {
		return tally{}, err
	}
	defer os.RemoveAll(folder)
	connector, err := duckdb.NewConnector(filepath.Join(folder, "usual.duckdb"), nil)
	if err != nil {
		return tally{}, err
	}
	defer connector.Close()
	db := sql.OpenDB(connector)
	fields := usualColumns(stream)
	if _, err := db.ExecContext(ctx, createUsual(fields)); err != nil {
		return tally{}, err
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return tally{}, err
	}
	appender, err := duckdb.NewAppenderFromConn(conn, "", "rows")
	if err != nil {
		return tally{}, err
	}
	var mu sync.Mutex
	rows := 0
	t, err := sdkLoop(ctx, p, stream, func(shard int, records []types.Record) error {
		for _, r := range records {
			row, err := usualRow(fields, r, shard)
			if err != nil {
				return err
			}
			mu.Lock()
			err = appender.AppendRow(row...)
			if rows++; err == nil && rows%100_000 == 0 {
				err = appender.Flush()
			}
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	if err := appender.Close(); err != nil {
		return t, err
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM rows").Scan(&t.records); err != nil {
		return t, err
	}
	_, err = db.ExecContext(ctx, "CHECKPOINT")
	return t, err
}

func createUsual(fields []arrow.Field) string {
	var columns []string
	for _, f := range fields {
		typ := map[arrow.Type]string{arrow.STRING: "VARCHAR", arrow.INT64: "BIGINT", arrow.FLOAT64: "DOUBLE", arrow.BOOL: "BOOLEAN"}[f.Type.ID()]
		columns = append(columns, f.Name+" "+typ)
	}
	columns = append(columns, "_kinesis_shard VARCHAR", "_kinesis_sequence VARCHAR", "_kinesis_arrival TIMESTAMPTZ", "_kinesis_partition_key VARCHAR")
	return "CREATE TABLE rows (" + strings.Join(columns, ", ") + ")"
}

func usualRow(fields []arrow.Field, r types.Record, shard int) ([]driver.Value, error) {
	var object map[string]any
	if err := json.Unmarshal(r.Data, &object); err != nil {
		return nil, err
	}
	row := make([]driver.Value, 0, len(fields)+4)
	for _, f := range fields {
		v := object[f.Name]
		switch x := v.(type) {
		case float64:
			if f.Type.ID() == arrow.INT64 {
				v = int64(x)
			}
		case map[string]any, []any:
			text, err := json.Marshal(x)
			if err != nil {
				return nil, err
			}
			v = string(text)
		}
		row = append(row, v)
	}
	return append(row, fmt.Sprintf("shardId-%012d", shard), *r.SequenceNumber, *r.ApproximateArrivalTimestamp, *r.PartitionKey), nil
}
