//go:build !duckdb_arrow

package duckdb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	ddb "github.com/duckdb/duckdb-go/v2"
)

// feed runs one statement over the records, which have the same columns. It sees
// them under the name that it is given: a temporary table, filled row by row, one
// record after another so that there is never more than one record twice in memory.
// The driver can also append straight into a statement, but then tells no error's
// kind, and a row that is refused looks like a failing disk.
func (t *tx) feed(ctx context.Context, records []arrow.RecordBatch, statement func(from string) string) error {
	for _, r := range records {
		if err := t.feedOne(ctx, r, statement); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) feedOne(ctx context.Context, record arrow.RecordBatch, statement func(from string) string) error {
	const table = "_kinetl_batch"
	var columns []string
	for i, f := range record.Schema().Fields() {
		typ, err := typeName(f.Type)
		if err != nil {
			return fmt.Errorf("column %d: %w", i, err)
		}
		columns = append(columns, f.Name+" "+typ)
	}
	if _, err := t.exec(ctx, fmt.Sprintf("CREATE TEMP TABLE %s (%s)", table, strings.Join(columns, ", "))); err != nil {
		return err
	}
	err := t.conn.Raw(func(conn any) error {
		return appendRows(ctx, conn.(driver.Conn), table, record)
	})
	if err != nil {
		return fmt.Errorf("hand over rows: %w", oneLine(err))
	}
	if _, err := t.exec(ctx, statement("temp.main."+table)); err != nil {
		return err
	}
	_, err = t.exec(ctx, "DROP TABLE temp.main."+table)
	return err
}

// flushRows bounds what the appender holds beyond DuckDB's memory limit.
const flushRows = 10_000

func appendRows(ctx context.Context, conn driver.Conn, table string, record arrow.RecordBatch) (err error) {
	a, err := ddb.NewAppender(conn, "temp", "main", table)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.CloseWithCancel(ctx)) }()
	row := make([]driver.Value, record.NumCols())
	for i := range int(record.NumRows()) {
		for c := range row {
			row[c] = value(record.Column(c), i)
		}
		if err := a.AppendRow(row...); err != nil {
			return err
		}
		if i%flushRows == flushRows-1 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := a.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func typeName(t arrow.DataType) (string, error) {
	switch t := t.(type) {
	case *arrow.BooleanType:
		return "BOOLEAN", nil
	case *arrow.Int64Type:
		return "BIGINT", nil
	case *arrow.Uint64Type:
		return "UBIGINT", nil
	case *arrow.Float64Type:
		return "DOUBLE", nil
	case *arrow.Decimal128Type:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale), nil
	case *arrow.TimestampType:
		return "TIMESTAMPTZ", nil
	case *arrow.BinaryType:
		return "BLOB", nil
	case *arrow.StringType:
		return "VARCHAR", nil
	case *arrow.StructType:
		var fields []string
		for _, f := range t.Fields() {
			typ, err := typeName(f.Type)
			if err != nil {
				return "", err
			}
			fields = append(fields, quote(f.Name)+" "+typ)
		}
		return "STRUCT(" + strings.Join(fields, ", ") + ")", nil
	}
	return "", fmt.Errorf("no DuckDB type for %s", t)
}

// value is an Arrow value as the driver takes it. typeName has refused other types.
func value(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		return a.Value(i)
	case *array.Int64:
		return a.Value(i)
	case *array.Uint64:
		return a.Value(i)
	case *array.Float64:
		return a.Value(i)
	case *array.Decimal128:
		t := a.DataType().(*arrow.Decimal128Type)
		return ddb.Decimal{Width: uint8(t.Precision), Scale: uint8(t.Scale), Value: new(big.Int).Set(a.Value(i).BigInt())}
	case *array.Timestamp:
		return time.UnixMicro(int64(a.Value(i))).UTC()
	case *array.Binary:
		return a.Value(i)
	case *array.String:
		return a.Value(i)
	case *array.Struct:
		fields := a.DataType().(*arrow.StructType).Fields()
		out := make(map[string]any, len(fields))
		for f := range fields {
			out[fields[f].Name] = value(a.Field(f), i)
		}
		return out
	}
	return nil
}
