package duckdb

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/kinetl/kinetl"
)

// BenchmarkCommit stores parts of 10 columns: 4 strings, 2 integers, 2 doubles, a
// boolean and JSON.
func BenchmarkCommit(b *testing.B) {
	for _, rows := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			d, err := New(Options{Path: filepath.Join(b.TempDir(), "bench.duckdb")})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			schema, batch := benchBatch(rows)
			ctx := context.Background()
			if _, err := d.Prepare(ctx, "bench", schema, kinetl.Refuse); err != nil {
				b.Fatal(err)
			}
			if _, err := d.Claim(ctx, "bench", []kinetl.Claim{{Shard: shard, Start: at(0)}}); err != nil {
				b.Fatal(err)
			}
			n := 0
			for b.Loop() {
				p := kinetl.Part{Shard: shard, After: at(n), Through: at(n + 1), Schema: schema, Rows: batch}
				if _, err := d.Commit(ctx, "bench", []kinetl.Part{p}); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n*rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func benchBatch(rows int) (kinetl.Schema, arrow.RecordBatch) {
	classes := []kinetl.Class{kinetl.String, kinetl.String, kinetl.String, kinetl.String, kinetl.Int53, kinetl.Int64, kinetl.Double, kinetl.Double, kinetl.Bool, kinetl.JSON}
	var schema kinetl.Schema
	var fields []arrow.Field
	for i, c := range classes {
		schema = append(schema, kinetl.Column{Name: fmt.Sprintf("column%d", i), Class: c})
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("column%d", i), Type: c.Arrow(), Nullable: true})
	}
	r := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer r.Release()
	for i := range rows {
		for c, class := range classes {
			switch f := r.Field(c).(type) {
			case *array.Int64Builder:
				f.Append(int64(i * 7919))
			case *array.Float64Builder:
				f.Append(float64(i) / 7)
			case *array.BooleanBuilder:
				f.Append(i%3 == 0)
			case *array.StringBuilder:
				if class == kinetl.JSON {
					f.Append(fmt.Sprintf(`{"id":%d,"tags":["a","b%d"]}`, i, i%100))
				} else {
					f.Append(fmt.Sprintf("value %d of column %d", i*31, c))
				}
			}
		}
	}
	return schema, r.NewRecordBatch()
}
