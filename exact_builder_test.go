package kinetl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// exactBuilder is what Builder promises, in the plainest way: it keeps every value's
// class and text until Seal, which alone decides types. FuzzColumns holds Builder
// against it.
type exactBuilder struct {
	schema  Schema // in force
	changes TypeChanges
	mode    MetadataMode

	cols   []exactColumn         // those of schema, new metadata columns, then those that records brought
	keys   map[string]int        // a key as it was spelled -> its column
	folded map[string]int        // a folded column name -> its column
	meta   []exactMetadataColumn // what EndRow and Seal fill
	shards []ShardID             // that rows came from
	rows   []exactOrigin
	slab   []byte // text of all cells and origins
	held   int64

	// The current row, to take it back: an abort must leave no cell, no widened
	// class and no column behind, or a refused record would change the table.
	turn     int64 // number of the current row, aborted ones included
	undo     []exactUndo
	learned  []string // keys first seen in it
	oldCols  int
	oldSlab  int
	unusable error // why no row can be ended: a metadata column of the table has the wrong type
}

type exactColumn struct {
	Column
	cells []exactCell
	turn  int64 // the row that last had a key of this column, null or not
}

// cell is a value's text: canonical for a scalar, unescaped for a string, as it
// came for a nested value.
type exactCell struct {
	row, off, n uint32
	class       Class
}

type exactUndo struct {
	col   int
	class Class
}

// newExactBuilder starts a part for a table with this schema.
func newExactBuilder(schema Schema, changes TypeChanges, mode MetadataMode) *exactBuilder {
	b := &exactBuilder{changes: changes, mode: mode}
	b.Reset(schema)
	return b
}

// Reset drops what the builder holds and starts a part for a table with this schema.
func (b *exactBuilder) Reset(schema Schema) {
	b.schema = schema
	b.cols = make([]exactColumn, len(schema))
	b.keys = map[string]int{}
	b.folded = make(map[string]int, len(schema))
	for i, c := range schema {
		b.cols[i].Column = c
		if _, ok := b.folded[Fold(c.Name)]; !ok {
			b.folded[Fold(c.Name)] = i
		}
	}
	b.addMetadata()
	b.shards, b.rows, b.slab = nil, nil, nil
	b.held = int64(len(b.cols)) * exactColumnBytes
	b.turn = 1
	b.begin()
}

// Approximate heap bytes of a column, of a spelling of a key, of a cell and of a
// row, growth of their slices and its RowID included.
const (
	exactColumnBytes = 256
	exactKeyBytes    = 96
	exactCellBytes   = 24
	exactRowBytes    = 112
)

func (b *exactBuilder) begin() {
	b.undo, b.learned = b.undo[:0], b.learned[:0]
	b.oldCols, b.oldSlab = len(b.cols), len(b.slab)
}

// Set adds a field to the current row. Text is the value's canonical text for a
// boolean or number (see ClassifyNumber), the string itself for a String, JSON text
// for JSON, "{}" or "[]" for Empty; class Unset is a null, which makes no cell.
// Key and text must be UTF-8; both are copied.
//
// An error is the reason why the record can't become a row; the caller aborts it:
// two keys in one column, a key with a NUL, or a value that the column can't take.
func (b *exactBuilder) Set(key []byte, class Class, text []byte) error {
	i, ok := b.keys[string(key)]
	if !ok {
		var err error
		if i, err = b.learn(key); err != nil {
			return err
		}
	}
	c := &b.cols[i]
	if c.turn == b.turn {
		return fmt.Errorf("duplicate key %s: column %s has a value already", quoted(key), quoted([]byte(c.Name)))
	}
	c.turn = b.turn
	if class == Unset {
		return nil
	}
	if class == Empty && b.changes == Allow && !c.Cap {
		class = JSON
	}
	joined, ok := c.Widen(class, b.changes)
	if !ok {
		return c.refuse(key, class, text, b.changes)
	}
	if c.Class == Unset && i >= len(b.schema) {
		// A null does not name a column: sealed alone, it would leave none behind.
		c.Name = columnName(string(key))
	}
	b.undo = append(b.undo, exactUndo{i, c.Class})
	c.Class = joined
	off := exactHold(b, text)
	c.cells = append(c.cells, exactCell{row: uint32(len(b.rows)), off: off, n: uint32(len(text)), class: class})
	b.held += exactCellBytes
	return nil
}

// learn finds or makes the column of a key that was not spelled like this before.
func (b *exactBuilder) learn(key []byte) (int, error) {
	if bytes.IndexByte(key, 0) >= 0 {
		return 0, fmt.Errorf("key %s contains a NUL character, which no column name can", quoted(key))
	}
	name := columnName(string(key))
	i, ok := b.folded[Fold(name)]
	if !ok {
		i = len(b.cols)
		b.cols = append(b.cols, exactColumn{Column: Column{Name: name}})
		b.folded[Fold(name)] = i
		b.held += exactColumnBytes + 2*int64(len(name))
	}
	b.keys[string(key)] = i
	b.learned = append(b.learned, string(key))
	b.held += exactKeyBytes + int64(len(key))
	return i, nil
}

// exactHold copies text into the slab and says where it lies.
func exactHold[T string | []byte](b *exactBuilder, text T) (off uint32) {
	if len(b.slab)+len(text) > exactLimit {
		panic(fmt.Sprintf("kinetl: a part passed %d bytes, its caller must seal it before", exactLimit))
	}
	off = uint32(len(b.slab))
	b.slab = append(b.slab, text...)
	b.held += int64(len(text))
	return off
}

func (b *exactBuilder) text(off, n uint32) []byte { return b.slab[off : off+n : off+n] }

// EndRow ends the current row as the row of this record. It fails only when the
// table has a metadata column of a type that can't exactHold what goes there; the row is
// then aborted, and the error is the reason for the dead letter.
func (b *exactBuilder) EndRow(rec *Record, shard ShardID) error {
	if b.unusable != nil {
		b.AbortRow()
		return b.unusable
	}
	b.rows = append(b.rows, b.origin(rec, shard))
	b.held += exactRowBytes
	b.turn++
	b.begin()
	return nil
}

// AbortRow takes the current row back. Nothing of it is left behind.
func (b *exactBuilder) AbortRow() {
	for i := len(b.undo) - 1; i >= 0; i-- {
		u := b.undo[i]
		c := &b.cols[u.col]
		c.Class = u.class
		c.cells = c.cells[:len(c.cells)-1]
		b.held -= exactCellBytes
	}
	for _, key := range b.learned {
		delete(b.keys, key)
		b.held -= exactKeyBytes + int64(len(key))
	}
	for _, c := range b.cols[b.oldCols:] {
		delete(b.folded, Fold(c.Name))
		b.held -= exactColumnBytes + 2*int64(len(c.Name))
	}
	clear(b.cols[b.oldCols:])
	b.cols = b.cols[:b.oldCols]
	b.held -= int64(len(b.slab) - b.oldSlab)
	b.slab = b.slab[:b.oldSlab]
	b.turn++
	b.begin()
}

// Rows is the number of ended rows.
func (b *exactBuilder) Rows() int { return len(b.rows) }

// Bytes is about how much heap the builder holds. Sealing needs as much again.
func (b *exactBuilder) Bytes() int64 { return b.held }

// Seal returns the ended rows as a batch, in their order, with its schema and each
// row's record, and starts the next part for the same table; without rows it
// returns nothing. The schema has the columns of which the batch has a value, those
// of the table first and as the table names them, their class the join of the
// table's class and of all values'. The caller releases the batch.
func (b *exactBuilder) Seal() (arrow.RecordBatch, Schema, []RowID) {
	b.AbortRow()
	defer b.Reset(b.schema)
	if len(b.rows) == 0 {
		return nil, nil, nil
	}
	sealed := b.seal()
	ids := b.rowIDs()
	return sealed.batch(len(b.rows)), sealed.schema, ids
}

// seal builds the columns: the table's in its order, new ones in the order in which
// they came, new metadata columns last.
func (b *exactBuilder) seal() *sealed {
	meta := make(map[int]exactMetadataColumn, len(b.meta))
	own := len(b.schema)
	for _, m := range b.meta {
		meta[m.col] = m
		own = max(own, m.col+1)
	}
	out := &sealed{}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			c := &b.cols[i]
			if m, ok := meta[i]; ok {
				out.add(c.Column, b.metadataArray(m))
			} else if len(c.cells) > 0 {
				out.add(c.Column, b.cellArray(c))
			}
		}
	}
	add(0, len(b.schema))
	add(own, len(b.cols))
	add(len(b.schema), own)
	return out
}

// cellArray builds a column's array from its cells.
func (b *exactBuilder) cellArray(c *exactColumn) arrow.Array {
	switch c.Class {
	case Bool:
		out := array.NewBooleanBuilder(memory.DefaultAllocator)
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(text[0] == 't') })
	case Int53, Int64:
		out := array.NewInt64Builder(memory.DefaultAllocator)
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(parseInt(text)) })
	case Decimal:
		out := array.NewDecimal128Builder(memory.DefaultAllocator, Decimal.Arrow().(*arrow.Decimal128Type))
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(parseDecimal(text)) })
	case Double:
		out := array.NewFloat64Builder(memory.DefaultAllocator)
		return b.fill(out, c, func(text []byte, _ Class) { out.Append(parseDouble(text)) })
	}
	return b.textArray(c)
}

// textArray builds a column of text.
func (b *exactBuilder) textArray(c *exactColumn) arrow.Array {
	keepsEmpty, quotes := holdsEmpty(c.Class), c.Class == JSON
	size := 0
	for _, cell := range c.cells {
		size += int(cell.n)
		if quotes && cell.class == String {
			size += 2
		}
	}
	out := newExactText(len(b.rows), size)
	for _, cell := range c.cells {
		if cell.class == Empty && !keepsEmpty {
			continue
		}
		out.begin(int(cell.row))
		text := b.text(cell.off, cell.n)
		if quotes && cell.class == String {
			out.data = QuoteJSON(out.data, text)
		} else {
			out.data = append(out.data, text...)
		}
	}
	return out.array()
}

// exactText builds an array of text in buffers of the very size. Arrow's builders
// round up to a power of two, and a part's memory is mostly text.
type exactText struct {
	rows    int
	data    []byte
	offsets []int32
	valid   []byte
}

func newExactText(rows, size int) *exactText {
	return &exactText{
		rows: rows, data: make([]byte, 0, size), offsets: make([]int32, 0, rows+1),
		valid: make([]byte, bitutil.BytesForBits(int64(rows))),
	}
}

// begin starts the value of a row; the caller appends it to data. Rows come in
// order, and those left out are NULL.
func (t *exactText) begin(row int) {
	for len(t.offsets) <= row {
		t.offsets = append(t.offsets, int32(len(t.data)))
	}
	bitutil.SetBit(t.valid, row)
}

func (t *exactText) array() arrow.Array {
	for len(t.offsets) <= t.rows {
		t.offsets = append(t.offsets, int32(len(t.data)))
	}
	buffers := []*memory.Buffer{
		memory.NewBufferBytes(t.valid),
		memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(t.offsets)),
		memory.NewBufferBytes(t.data),
	}
	values := array.NewData(arrow.BinaryTypes.String, t.rows, buffers, nil, array.UnknownNullCount, 0)
	defer values.Release()
	return array.NewStringData(values)
}

// fill puts the cells at their rows and NULL elsewhere. {} and [] are NULL in a
// column of scalars.
func (b *exactBuilder) fill(out array.Builder, c *exactColumn, put func(text []byte, class Class)) arrow.Array {
	defer out.Release()
	out.Reserve(len(b.rows))
	keepsEmpty := holdsEmpty(c.Class)
	next := uint32(0)
	for _, cell := range c.cells {
		if cell.class == Empty && !keepsEmpty {
			continue
		}
		if cell.row > next {
			out.AppendNulls(int(cell.row - next))
		}
		put(b.text(cell.off, cell.n), cell.class)
		next = cell.row + 1
	}
	if rest := uint32(len(b.rows)) - next; rest > 0 {
		out.AppendNulls(int(rest))
	}
	return out.NewArray()
}

// exactNoArrival stands for an arrival that is not known.
const exactNoArrival = math.MinInt64

// origin is where a row comes from.
type exactOrigin struct {
	sub            uint64
	arrived        int64  // microseconds since the epoch, or exactNoArrival
	off            uint32 // sequence number and, after it, partition key in the slab
	sequence, part uint32 // their lengths
	shard          uint32 // in exactBuilder.shards
}

func (b *exactBuilder) origin(rec *Record, shard ShardID) exactOrigin {
	if n := len(b.shards); n == 0 || b.shards[n-1] != shard {
		b.shards = append(b.shards, shard)
	}
	o := exactOrigin{
		sub: rec.Sub, arrived: exactNoArrival, shard: uint32(len(b.shards) - 1),
		sequence: uint32(len(rec.Sequence)), part: uint32(len(rec.PartitionKey)),
	}
	if !rec.Arrived.IsZero() {
		o.arrived = rec.Arrived.UnixMicro()
	}
	// Copies, since the strings may be slices of a page that would be kept whole.
	o.off = exactHold(b, rec.Sequence)
	exactHold(b, rec.PartitionKey)
	return o
}

func (b *exactBuilder) sequence(o *exactOrigin) []byte { return b.text(o.off, o.sequence) }

func (b *exactBuilder) partitionKey(o *exactOrigin) []byte { return b.text(o.off+o.sequence, o.part) }

// rowIDs names the rows' records. One string holds all sequence numbers.
func (b *exactBuilder) rowIDs() []RowID {
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

// exactMetadataColumn is a column that EndRow fills.
type exactMetadataColumn struct {
	col  int
	name string
}

// addMetadata finds the metadata columns in the table, or adds them. Where somebody
// else made one, anything that holds text will do.
func (b *exactBuilder) addMetadata() {
	b.meta, b.unusable = nil, nil
	for _, want := range MetadataSchema(b.mode) {
		i, ok := b.folded[Fold(want.Name)]
		if !ok {
			i = len(b.cols)
			b.cols = append(b.cols, exactColumn{Column: want})
			b.folded[Fold(want.Name)] = i
		}
		if c := b.cols[i].Column; !want.Class.conforms(c.Class) {
			b.unusable = fmt.Errorf("column %q of the table is %s, which can't exactHold what recordMetadata puts there: rename it, or set another recordMetadata", c.Name, strings.TrimSpace(c.Class.String()+" "+c.Native))
		}
		b.meta = append(b.meta, exactMetadataColumn{col: i, name: want.Name})
	}
}

// metadataArray is a metadata column in the class that the table has for it.
func (b *exactBuilder) metadataArray(m exactMetadataColumn) arrow.Array {
	class := b.cols[m.col].Class
	switch class {
	case Timestamp:
		return b.arrivals()
	case Metadata:
		return b.objects()
	}
	var text []byte
	var out *exactText
	for i := range b.rows {
		var ok bool
		text, ok = b.metadataText(text[:0], m.name, &b.rows[i])
		if out == nil {
			// A metadata column's texts are much of one length.
			out = newExactText(len(b.rows), (len(text)+2)*len(b.rows))
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

func (b *exactBuilder) arrivals() arrow.Array {
	out := array.NewTimestampBuilder(memory.DefaultAllocator, Timestamp.Arrow().(*arrow.TimestampType))
	defer out.Release()
	out.Reserve(len(b.rows))
	for i := range b.rows {
		if at := b.rows[i].arrived; at == exactNoArrival {
			out.AppendNull()
		} else {
			out.Append(arrow.Timestamp(at))
		}
	}
	return out.NewArray()
}

func (b *exactBuilder) objects() arrow.Array {
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
func (b *exactBuilder) objectField(dst []byte, name string, o *exactOrigin) ([]byte, bool) {
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
func (b *exactBuilder) metadataText(dst []byte, name string, o *exactOrigin) ([]byte, bool) {
	shard := &b.shards[o.shard]
	switch name {
	case StreamColumn:
		return append(dst, shard.StreamName()...), true
	case ShardColumn:
		return append(dst, shard.Shard...), true
	case SequenceColumn:
		return append(dst, b.sequence(o)...), true
	case ArrivalColumn:
		if o.arrived == exactNoArrival {
			return dst, false
		}
		return time.UnixMicro(o.arrived).UTC().AppendFormat(dst, arrivalLayout), true
	case PartitionKeyColumn:
		return append(dst, b.partitionKey(o)...), true
	case IDColumn:
		return b.appendID(dst, shard, o), true
	}
	return appendObject(dst, func(dst []byte, f int) ([]byte, bool) { return b.objectField(dst, MetadataType.Field(f).Name, o) }), true
}

// appendID appends the record's identity, the same however often it is read: hex of
// the first 16 bytes of SHA-256 over stream ARN, stream creation time in seconds,
// shard id, sequence number and sub-sequence number, joined by line feeds (R1).
func (b *exactBuilder) appendID(dst []byte, shard *ShardID, o *exactOrigin) []byte {
	n := len(dst)
	dst = append(append(dst, shard.Stream...), '\n')
	dst = append(strconv.AppendInt(dst, shard.Created, 10), '\n')
	dst = append(append(dst, shard.Shard...), '\n')
	dst = append(append(dst, b.sequence(o)...), '\n')
	sum := sha256.Sum256(strconv.AppendUint(dst, o.sub, 10)[n:])
	return hex.AppendEncode(dst[:n], sum[:16])
}

const exactLimit = (1<<31 - 1) / 6
