package kinetl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
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

// noArrival stands for an arrival that is not known.
const noArrival = math.MinInt64

// origin is where a row comes from.
type origin struct {
	sub            uint64
	arrived        int64  // microseconds since the epoch, or noArrival
	off            uint32 // sequence number and, after it, partition key in the slab
	sequence, part uint32 // their lengths
	shard          uint32 // in Builder.shards
}

func (b *Builder) origin(rec *Record, shard ShardID) origin {
	if n := len(b.shards); n == 0 || b.shards[n-1] != shard {
		b.shards = append(b.shards, shard)
	}
	o := origin{
		sub: rec.Sub, arrived: noArrival, shard: uint32(len(b.shards) - 1),
		sequence: uint32(len(rec.Sequence)), part: uint32(len(rec.PartitionKey)),
	}
	if !rec.Arrived.IsZero() {
		o.arrived = rec.Arrived.UnixMicro()
	}
	// Copies, since the strings may be slices of a page that would be kept whole.
	o.off = hold(b, rec.Sequence)
	hold(b, rec.PartitionKey)
	return o
}

func (b *Builder) sequence(o *origin) []byte { return b.text(o.off, o.sequence) }

func (b *Builder) partitionKey(o *origin) []byte { return b.text(o.off+o.sequence, o.part) }

// rowIDs names the rows' records. One string holds all sequence numbers.
func (b *Builder) rowIDs() []RowID {
	n := 0
	for i := range b.rows {
		n += int(b.rows[i].sequence)
	}
	var all strings.Builder
	all.Grow(n)
	for i := range b.rows {
		all.Write(b.sequence(&b.rows[i]))
	}
	rest, ids := all.String(), make([]RowID, len(b.rows))
	for i := range b.rows {
		o := &b.rows[i]
		ids[i] = RowID{Sequence: rest[:o.sequence], Sub: o.sub}
		rest = rest[o.sequence:]
	}
	return ids
}

// metadataColumn is a column that EndRow fills.
type metadataColumn struct {
	col  int
	name string
}

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
	var s Schema
	for _, name := range mode.names() {
		s = append(s, Column{Name: name, Class: metadataClass(name)})
	}
	return s
}

// addMetadata finds the metadata columns in the table, or adds them. Where somebody
// else made one, anything that holds text will do.
func (b *Builder) addMetadata() {
	b.meta, b.unusable = nil, nil
	for _, want := range MetadataSchema(b.mode) {
		i, ok := b.folded[Fold(want.Name)]
		if !ok {
			i = len(b.cols)
			b.cols = append(b.cols, column{Column: want})
			b.folded[Fold(want.Name)] = i
		}
		if c := b.cols[i].Column; !want.Class.conforms(c.Class) {
			b.unusable = fmt.Errorf("column %q of the table is %s, which can't hold what recordMetadata puts there: rename it, or set another recordMetadata", c.Name, strings.TrimSpace(c.Class.String()+" "+c.Native))
		}
		b.meta = append(b.meta, metadataColumn{col: i, name: want.Name})
	}
}

// metadataArray is a metadata column in the class that the table has for it.
func (b *Builder) metadataArray(m metadataColumn) arrow.Array {
	class := b.cols[m.col].Class
	switch class {
	case Timestamp:
		return b.arrivals()
	case Metadata:
		return b.objects()
	}
	var text []byte
	var out *textColumn
	for i := range b.rows {
		var ok bool
		text, ok = b.metadataText(text[:0], m.name, &b.rows[i])
		if out == nil {
			// A metadata column's texts are much of one length.
			out = newTextColumn(len(b.rows), (len(text)+2)*len(b.rows))
		}
		if !ok {
			continue
		}
		out.begin(i)
		if class == JSON && m.name != ObjectColumn {
			out.data = QuoteJSON(out.data, text)
		} else {
			out.data = append(out.data, text...)
		}
	}
	return out.array()
}

func (b *Builder) arrivals() arrow.Array {
	out := array.NewTimestampBuilder(memory.DefaultAllocator, Timestamp.Arrow().(*arrow.TimestampType))
	defer out.Release()
	out.Reserve(len(b.rows))
	for i := range b.rows {
		if at := b.rows[i].arrived; at == noArrival {
			out.AppendNull()
		} else {
			out.Append(arrow.Timestamp(at))
		}
	}
	return out.NewArray()
}

func (b *Builder) objects() arrow.Array {
	out := array.NewStructBuilder(memory.DefaultAllocator, MetadataType)
	defer out.Release()
	out.Reserve(len(b.rows))
	var text []byte
	for i := range b.rows {
		out.Append(true)
		for f := range MetadataType.NumFields() {
			if sub, ok := out.FieldBuilder(f).(*array.Int64Builder); ok {
				sub.Append(int64(b.rows[i].sub))
				continue
			}
			field := out.FieldBuilder(f).(*array.StringBuilder)
			var ok bool
			if text, ok = b.objectField(text[:0], MetadataType.Field(f).Name, &b.rows[i]); ok {
				field.BinaryBuilder.Append(text)
			} else {
				field.AppendNull()
			}
		}
	}
	return out.NewArray()
}

// objectField appends the text of a field of kinesisMetadata; false: not known.
func (b *Builder) objectField(dst []byte, name string, o *origin) ([]byte, bool) {
	switch name {
	case "stream":
		return b.metadataText(dst, StreamColumn, o)
	case "shardId":
		return b.metadataText(dst, ShardColumn, o)
	case "approximateArrival":
		return b.metadataText(dst, ArrivalColumn, o)
	case "partitionKey":
		return b.metadataText(dst, PartitionKeyColumn, o)
	case "sequenceNumber":
		return b.metadataText(dst, SequenceColumn, o)
	case "subSequenceNumber":
		return strconv.AppendUint(dst, o.sub, 10), true
	}
	// shardedSequenceNumber: sorts, as text, like the records do.
	return fmt.Appendf(append(dst, b.sequence(o)...), "%0*d", subDigits, o.sub), true
}

// metadataText appends a metadata column's value; false: not known.
func (b *Builder) metadataText(dst []byte, name string, o *origin) ([]byte, bool) {
	shard := &b.shards[o.shard]
	switch name {
	case StreamColumn:
		return append(dst, shard.StreamName()...), true
	case ShardColumn:
		return append(dst, shard.Shard...), true
	case SequenceColumn:
		return append(dst, b.sequence(o)...), true
	case ArrivalColumn:
		if o.arrived == noArrival {
			return dst, false
		}
		return time.UnixMicro(o.arrived).UTC().AppendFormat(dst, arrivalLayout), true
	case PartitionKeyColumn:
		return append(dst, b.partitionKey(o)...), true
	case IDColumn:
		return b.appendID(dst, shard, o), true
	}
	return appendObject(dst, func(dst []byte, field string) ([]byte, bool) { return b.objectField(dst, field, o) }), true
}

// appendID appends the record's identity, the same however often it is read: hex of
// the first 16 bytes of SHA-256 over stream ARN, stream creation time in seconds,
// shard id, sequence number and sub-sequence number, joined by line feeds (R1).
func (b *Builder) appendID(dst []byte, shard *ShardID, o *origin) []byte {
	n := len(dst)
	dst = append(append(dst, shard.Stream...), '\n')
	dst = append(strconv.AppendInt(dst, shard.Created, 10), '\n')
	dst = append(append(dst, shard.Shard...), '\n')
	dst = append(append(dst, b.sequence(o)...), '\n')
	sum := sha256.Sum256(strconv.AppendUint(dst, o.sub, 10)[n:])
	return hex.AppendEncode(dst[:n], sum[:16])
}

// appendObject appends kinesisMetadata as JSON text.
func appendObject(dst []byte, field func(dst []byte, name string) ([]byte, bool)) []byte {
	var text []byte
	dst = append(dst, '{')
	for i, f := range MetadataType.Fields() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(QuoteJSON(dst, f.Name), ':')
		var ok bool
		text, ok = field(text[:0], f.Name)
		switch {
		case !ok:
			dst = append(dst, "null"...)
		case f.Type.ID() == arrow.STRING:
			dst = QuoteJSON(dst, text)
		default:
			dst = append(dst, text...)
		}
	}
	return append(dst, '}')
}
