package kinetl

import (
	"fmt"
	"strings"
)

// MetadataMode says which columns about the record itself a row has.
type MetadataMode uint8

const (
	// MetadataColumns: _kinesis_shard, _kinesis_sequence, _kinesis_arrival,
	// _kinesis_partition_key and _openetl_id (default).
	MetadataColumns MetadataMode = iota
	// MetadataColumnsStream has _kinesis_stream as well, the stream's name, for
	// tables that several streams share.
	MetadataColumnsStream
	// MetadataObject: one kinesisMetadata column of the class Metadata, and _openetl_id.
	MetadataObject
	// MetadataNone: nothing.
	MetadataNone
)

// The metadata columns. A record's own field of such a name goes to the column of
// that name with "_" after it.
const (
	StreamColumn       = "_kinesis_stream"
	ShardColumn        = "_kinesis_shard"
	SequenceColumn     = "_kinesis_sequence"
	ArrivalColumn      = "_kinesis_arrival"
	PartitionKeyColumn = "_kinesis_partition_key"
	ObjectColumn       = "kinesisMetadata"
	IDColumn           = "_openetl_id"
)

// isReserved is called for each new spelling of a key only.
func isReserved(key string) bool {
	for _, name := range [...]string{StreamColumn, ShardColumn, SequenceColumn, ArrivalColumn, PartitionKeyColumn, ObjectColumn, IDColumn} {
		if len(name) == len(key) && Fold(name) == Fold(key) {
			return true
		}
	}
	return false
}

// arrivalLayout is ISO 8601 in UTC with the precision of Kinesis' timestamps.
const arrivalLayout = "2006-01-02T15:04:05.000Z"

// names are the metadata columns of the mode.
func (m MetadataMode) names() []string {
	switch m {
	case MetadataColumns:
		return []string{ShardColumn, SequenceColumn, ArrivalColumn, PartitionKeyColumn, IDColumn}
	case MetadataColumnsStream:
		return []string{StreamColumn, ShardColumn, SequenceColumn, ArrivalColumn, PartitionKeyColumn, IDColumn}
	case MetadataObject:
		return []string{ObjectColumn, IDColumn}
	}
	return nil
}

// metadataClass is a metadata column's class where the table does not say otherwise.
func metadataClass(name string) Class {
	switch name {
	case ArrivalColumn:
		return Timestamp
	case ObjectColumn:
		return Metadata
	}
	return String
}

// MetadataSchema is the metadata columns of the mode, as kinetl makes them.
func MetadataSchema(mode MetadataMode) Schema {
	names := mode.names()
	s := make(Schema, 0, len(names))
	for _, name := range names {
		s = append(s, Column{Name: name, Class: metadataClass(name)})
	}
	return s
}

// addMetadata finds the metadata columns in the table, or adds them. Where somebody
// else made one, anything that holds text will do.
func (b *Builder) addMetadata() {
	b.origin.columns, b.unusable = b.origin.columns[:0], nil
	for _, want := range MetadataSchema(b.mode) {
		i, ok := b.folded[Fold(want.Name)]
		if !ok {
			i = len(b.cols)
			b.addColumn(want)
			b.folded[Fold(want.Name)] = i
		}
		c := &b.cols[i]
		if !want.Class.conforms(c.Class) {
			b.unusable = fmt.Errorf("column %q of the table is %s, which can't hold what recordMetadata puts there: rename it, or set another recordMetadata", c.Name, strings.TrimSpace(c.Class.String()+" "+c.Native))
		}
		c.values.class = c.Class
		b.origin.columns = append(b.origin.columns, b.newOriginColumn(want.Name, i))
	}
}
