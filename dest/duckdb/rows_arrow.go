//go:build duckdb_arrow

package duckdb

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"encoding/hex"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	ddb "github.com/duckdb/duckdb-go/v2"
)

// feed runs one statement over the records, which have the same columns. It sees
// them under the name that it is given.
//
// The driver registers a reader as a view, in the catalogue of the database and not
// among the temporary ones. Its random name keeps it from meeting another worker's,
// and it is dropped before the transaction ends: a view that outlived the call
// would point to memory that is gone.
func (t *tx) feed(ctx context.Context, records []arrow.RecordBatch, statement func(from string) string) error {
	reader, err := array.NewRecordReader(records[0].Schema(), records)
	if err != nil {
		return err
	}
	defer reader.Release()
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	view := "_kinetl_batch_" + hex.EncodeToString(random)

	var release func()
	err = t.conn.Raw(func(conn any) error {
		a, err := ddb.NewArrowFromConn(conn.(driver.Conn))
		if err != nil {
			return err
		}
		release, err = a.RegisterView(reader, view)
		return err
	})
	if err != nil {
		return fmt.Errorf("hand over rows: %w", err)
	}
	defer release()
	if _, err := t.exec(ctx, statement(view)); err != nil {
		return err
	}
	_, err = t.exec(ctx, "DROP VIEW "+view)
	return err
}
