package kinetl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// originField is one thing that a row says about its record.
type originField uint8

const (
	streamField originField = iota
	shardField
	arrivalField
	partitionKeyField
	sequenceField
	subField
	shardedField // sequence and sub-sequence number: sorts, as text, like the records do
	objectField  // all of them
	idField
)

// originFields says what goes to the metadata columns.
var originFields = map[string]originField{
	StreamColumn: streamField, ShardColumn: shardField, ArrivalColumn: arrivalField, PartitionKeyColumn: partitionKeyField,
	SequenceColumn: sequenceField, ObjectColumn: objectField, IDColumn: idField,
}

// objectFields are the fields of MetadataType, in its order.
var objectFields = [...]originField{streamField, shardField, arrivalField, partitionKeyField, sequenceField, subField, shardedField}

// origins is where the rows come from: the records' places, and the metadata columns.
type origins struct {
	places    []place
	sequences strings.Builder // the sequence numbers of all places
	last      extent          // of the last batch
	columns   []originColumn

	shard    ShardID // of the last row
	stream   string  // its stream's name
	identity identity
	text     []byte // scratch
}

// place is a row's record: its sequence number, as a part of origins.sequences, and
// its sub-sequence number. A RowID would have the garbage collector look at each row.
type place struct {
	from, to uint32
	sub      uint64
}

// Bytes of a place, and of the RowID that Seal makes of it.
const placeBytes, rowIDBytes = 16, 24

// originColumn is a metadata column.
type originColumn struct {
	col    int
	field  originField
	object []values // where the column is of the class Metadata: its fields
}

func (o *origins) reset() {
	if len(o.places) > 0 {
		o.last = extent{rows: len(o.places), data: o.sequences.Len()}
	}
	o.places = nil
	o.sequences.Reset()
}

func (o *origins) held() int64 {
	return int64(o.sequences.Cap()) + placeBytes*int64(cap(o.places)) + rowIDBytes*int64(len(o.places))
}

func (b *Builder) newOriginColumn(name string, col int) originColumn {
	c := originColumn{col: col, field: originFields[name]}
	if b.cols[col].Class == Metadata {
		for _, f := range objectFields {
			class := String
			if f == subField {
				class = Int64
			}
			c.object = append(c.object, values{class: class, held: &b.held})
		}
	}
	return c
}

// addOrigin notes where the current row comes from, which it ends.
func (b *Builder) addOrigin(rec *Record, shard *ShardID) {
	o := &b.origin
	if o.shard != *shard {
		o.shard, o.stream = *shard, shard.StreamName()
		o.identity.enter(shard)
	}
	o.note(rec)
	for i := range o.columns {
		c := &o.columns[i]
		if c.object == nil {
			o.put(&b.cols[c.col].values, b.row, c.field, rec)
			continue
		}
		for f, field := range objectFields {
			o.put(&c.object[f], b.row, field, rec)
		}
	}
}

// note appends the record's place. The records of one aggregate share a sequence number.
func (o *origins) note(rec *Record) {
	n, size := len(o.places), o.sequences.Len()
	if n > 0 {
		if last := o.places[n-1]; o.sequences.String()[last.from:last.to] == rec.Sequence {
			o.places = append(o.places, place{last.from, last.to, rec.Sub})
			return
		}
	}
	if n == cap(o.places) {
		o.places = slices.Grow(o.places, grown(n, n+1, o.last.rows)-n)
	}
	if need := size + len(rec.Sequence); need > o.sequences.Cap() {
		o.sequences.Grow(grown(o.sequences.Cap(), need, o.last.data) - size)
	}
	o.sequences.WriteString(rec.Sequence)
	o.places = append(o.places, place{uint32(size), uint32(o.sequences.Len()), rec.Sub})
}

// rowIDs names the rows' records. One string holds all sequence numbers: the
// records' own may be slices of pages, which would be kept whole.
func (o *origins) rowIDs() []RowID {
	all, ids := o.sequences.String(), make([]RowID, len(o.places))
	for i, p := range o.places {
		ids[i] = RowID{Sequence: all[p.from:p.to], Sub: p.sub}
	}
	return ids
}

// put sets a metadata column, or a field of one, in the class that the table has for
// it. What is not known stays NULL.
func (o *origins) put(v *values, row int, field originField, rec *Record) {
	switch {
	case v.class == Timestamp:
		if !rec.Arrived.IsZero() {
			v.word(row, uint64(rec.Arrived.UnixMicro()))
		}
		return
	case v.class == Int64:
		v.word(row, rec.Sub)
		return
	case v.class == JSON && field != objectField:
		if text, ok := o.append(o.text[:0], field, rec); ok {
			putQuoted(v, row, text)
			o.text = text
		}
		return
	}
	switch field {
	case streamField:
		putText(v, row, o.stream)
	case shardField:
		putText(v, row, o.shard.Shard)
	case partitionKeyField:
		putText(v, row, rec.PartitionKey)
	case sequenceField:
		putText(v, row, rec.Sequence)
	default:
		if text, ok := o.append(o.text[:0], field, rec); ok {
			putText(v, row, text)
			o.text = text
		}
	}
}

// append appends the text of a field; false: not known.
func (o *origins) append(dst []byte, field originField, rec *Record) ([]byte, bool) {
	switch field {
	case streamField:
		return append(dst, o.stream...), true
	case shardField:
		return append(dst, o.shard.Shard...), true
	case arrivalField:
		if rec.Arrived.IsZero() {
			return dst, false
		}
		return time.UnixMicro(rec.Arrived.UnixMicro()).UTC().AppendFormat(dst, arrivalLayout), true
	case partitionKeyField:
		return append(dst, rec.PartitionKey...), true
	case sequenceField:
		return append(dst, rec.Sequence...), true
	case subField:
		return strconv.AppendUint(dst, rec.Sub, 10), true
	case shardedField:
		return fmt.Appendf(append(dst, rec.Sequence...), "%0*d", subDigits, rec.Sub), true
	case idField:
		return o.identity.append(dst, rec), true
	}
	return appendObject(dst, func(dst []byte, f int) ([]byte, bool) { return o.append(dst, objectFields[f], rec) }), true
}

// array hands over a metadata column.
func (c *originColumn) array(v *values, rows int) arrow.Array {
	if c.object == nil {
		return v.array(rows)
	}
	fields := make([]arrow.ArrayData, len(c.object))
	for i := range c.object {
		field := c.object[i].array(rows)
		defer field.Release()
		fields[i] = field.Data()
	}
	data := array.NewData(MetadataType, rows, []*memory.Buffer{nil}, fields, 0, 0)
	defer data.Release()
	return array.NewStructData(data)
}

// appendObject appends kinesisMetadata as JSON text. The function appends the text of
// MetadataType's field f, or says that it is not known.
func appendObject(dst []byte, field func(dst []byte, f int) ([]byte, bool)) []byte {
	var text []byte
	dst = append(dst, '{')
	for i, f := range MetadataType.Fields() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(QuoteJSON(dst, f.Name), ':')
		var ok bool
		text, ok = field(text[:0], i)
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
