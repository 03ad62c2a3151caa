package kinetl

import "github.com/apache/arrow-go/v18/arrow"

// Exact is the oracle for FuzzColumns: payloads to a batch, the slow and plain way.
type Exact struct {
	builder *exactBuilder
	decoder exactDecoder
}

func NewExact(schema Schema, changes TypeChanges, mode MetadataMode) *Exact {
	return &Exact{builder: newExactBuilder(schema, changes, mode)}
}

func (e *Exact) Add(payload []byte, rec *Record, shard ShardID) error {
	err := e.decoder.Decode(payload, e.builder)
	if err == nil {
		err = e.builder.EndRow(rec, shard)
	}
	if err != nil {
		e.builder.AbortRow()
	}
	return err
}

func (e *Exact) Rows() int { return e.builder.Rows() }

func (e *Exact) Seal() (arrow.RecordBatch, Schema, []RowID) { return e.builder.Seal() }
