package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/postgres"
	"github.com/kinetl/kinetl/dest/postgres/postgrestest"
)

var compare = flag.Bool("compare", false, "compare with the usual way into PostgreSQL, which takes a minute")

// TestPostgresRatio: payloads of 256 bytes become rows of a PostgreSQL table, by kinetl
// and as a competent user would do it: encoding/json into a map and pgx's CopyFrom,
// 100,000 rows a transaction. What is compared is rows per CPU-second of the client;
// the server is a process of its own.
func TestPostgresRatio(t *testing.T) {
	if !*compare {
		t.Skip("run by make bench-postgres")
	}
	const rows = 500_000
	rng := rand.New(rand.NewPCG(1, 2))
	payloads := make([][]byte, rows)
	for i := range payloads {
		payloads[i] = []byte(flat(rng, i))
	}
	var ratios []float64
	for range 3 {
		ours := kinetlRows(t, payloads)
		theirs := usualRows(t, payloads)
		ratios = append(ratios, theirs/ours)
		t.Logf("kinetl %.0f k rows per CPU-second, the usual way %.0f k", rows/ours/1000, rows/theirs/1000)
	}
	r := spreadOf(ratios)
	t.Logf("postgres_vs_usual_256: %.2f (%.2f to %.2f)", r.Median, r.Min, r.Max)
	if r.Median < 3 {
		t.Errorf("the ratio is %.2f, it should be 3 at least", r.Median)
	}
}

const transaction = 100_000 // rows

// kinetlRows is the CPU seconds that kinetl takes, with all metadata columns.
func kinetlRows(t *testing.T, payloads [][]byte) float64 {
	t.Helper()
	d, err := postgres.New(t.Context(), postgres.Options{URL: postgrestest.Start(t), Application: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	shard := kinetl.ShardID{Stream: "arn:aws:kinesis:us-east-1:000000000000:stream/rows", Created: 1, Shard: "shardId-000000000000"}
	builder, decoder := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataColumns), codec.NewJSON()
	after := kinetl.Oldest
	clock.begin()
	for i, payload := range payloads {
		if err := decoder.Decode(payload, builder); err != nil {
			t.Fatal(err)
		}
		record := kinetl.Record{Sequence: fmt.Sprintf("49600000000000000000000000000000000000%018d", i), PartitionKey: "customer-1", Data: payload}
		if err := builder.EndRow(&record, shard); err != nil {
			t.Fatal(err)
		}
		if builder.Rows() < transaction && i < len(payloads)-1 {
			continue
		}
		batch, schema, ids := builder.Seal()
		if after == kinetl.Oldest {
			if _, err := d.Prepare(t.Context(), "rows", schema, kinetl.Refuse); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Claim(t.Context(), "rows", []kinetl.Claim{{Shard: shard, Start: after}}); err != nil {
				t.Fatal(err)
			}
		}
		through := ids[len(ids)-1].Position()
		part := kinetl.Part{Shard: shard, After: after, Through: through, Rows: batch, Schema: schema, RowIDs: ids}
		report, err := d.Commit(t.Context(), "rows", []kinetl.Part{part})
		if err != nil || len(report.Fenced) > 0 {
			t.Fatalf("commit: %v, fenced %v", err, report.Fenced)
		}
		batch.Release()
		after = through
	}
	return clock.end().CPU
}

// usualRows is the CPU seconds of the usual way, without the id that kinetl adds.
func usualRows(t *testing.T, payloads [][]byte) float64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), postgrestest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	columns := []string{"id", "customer", "sku", "quantity", "price", "currency", "paid", "note", "_kinesis_shard", "_kinesis_sequence", "_kinesis_partition_key"}
	if _, err := conn.Exec(t.Context(), `CREATE TABLE rows (id bigint, customer text, sku text, quantity bigint, price double precision,
		currency text, paid boolean, note text, _kinesis_shard text, _kinesis_sequence text, _kinesis_partition_key text)`); err != nil {
		t.Fatal(err)
	}
	clock.begin()
	for from := 0; from < len(payloads); from += transaction {
		part := payloads[from:min(from+transaction, len(payloads))]
		n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"rows"}, columns, pgx.CopyFromSlice(len(part), func(i int) ([]any, error) {
			var row map[string]any
			if err := json.Unmarshal(part[i], &row); err != nil {
				return nil, err
			}
			return []any{
				int64(row["id"].(float64)), row["customer"], row["sku"], int64(row["quantity"].(float64)), row["price"], row["currency"], row["paid"], row["note"],
				"shardId-000000000000", fmt.Sprintf("49600000000000000000000000000000000000%018d", from+i), "customer-1",
			}, nil
		}))
		if err != nil || n != int64(len(part)) {
			t.Fatalf("%d rows: %v", n, err)
		}
	}
	return clock.end().CPU
}
