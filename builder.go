package kinetl

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// MaxPartBytes is what a part may hold, as Bytes counts it, before its caller must
// seal it. Arrow's text offsets have 31 bits and quoting text as JSON can make six
// bytes of one, so a part far beyond it could not become a batch.
const MaxPartBytes = 256 << 20

// Builder collects the rows of one part, column by column and in Arrow's layout, so
// that Seal only hands over what is there. One goroutine uses it.
//
// A column's type is the smallest that holds the table's and all values of the part:
// where a value does not fit, EndRow converts what the column holds, as Conform does.
// So the order of the rows decides nothing but the refusals of TypeChanges (R28, R29).
//
// Fields enter in two ways. Set takes any value, by key. The typed methods, Int,
// Double, Bool, Text, JSON and Null, take a column that Find named; they are quick,
// and report false, having changed nothing, for a value that must go through Set.
// A decoder tries the typed method first:
//
//	if !row.Int(col, v) {
//		err = row.Set(key, class, text)
//	}
//
// Under Refuse {} and [] decide no type and are NULL beside scalars. Under Allow
// they are nested values like any other: as NULL beside scalars they would be lost
// once the column becomes JSON, and whether they are would depend on where a batch
// ended.
type Builder struct {
	schema  Schema // in force
	changes TypeChanges
	mode    MetadataMode

	cols   []column       // those of schema, new metadata columns, then those that records brought
	keys   map[string]int // a key as it was spelled -> its column
	folded map[string]int // a folded column name -> its column
	origin origins
	row    int   // number of ended rows, so also the index of the current one
	held   int64 // heap of all of this
	epoch  uint64
	last   map[string]extent // of the columns of the last batch, by folded name

	// The current row, to take it back: an abort must leave no cell, no widened
	// class and no column behind, or a refused record would change the table. What
	// fits its column is there already; what would change one waits for EndRow.
	turn     int64 // number of the current row, aborted ones included
	waiting  []waitingCell
	text     []byte   // of waiting
	learned  []string // keys first seen in it
	oldCols  int
	unusable error // why no row can be ended: a metadata column of the table has the wrong type
}

// column is a column of the part. Its values have its class once a row that has a
// value for it was ended.
type column struct {
	Column
	values
	turn int64 // the row that last had a key of this column, null or not
}

// waitingCell is a value of the current row that its column can't hold as it is.
type waitingCell struct {
	col     int
	was     Class // the column's class without it
	class   Class // the value's own
	off, to int   // its text
}

// NewBuilder starts a part for a table with this schema.
func NewBuilder(schema Schema, changes TypeChanges, mode MetadataMode) *Builder {
	b := &Builder{changes: changes, mode: mode}
	b.Reset(schema)
	return b
}

// Reset drops what the builder holds and starts a part for a table with this schema.
func (b *Builder) Reset(schema Schema) {
	b.schema = schema
	b.cols = make([]column, 0, len(schema)+len(b.last)+8)
	b.keys = map[string]int{}
	b.folded = make(map[string]int, len(schema))
	b.held = 0
	for i, c := range schema {
		b.addColumn(c)
		if _, ok := b.folded[Fold(c.Name)]; !ok {
			b.folded[Fold(c.Name)] = i
		}
	}
	b.addMetadata()
	b.origin.reset()
	b.row = 0
	b.turn++
	b.begin()
	b.epoch++
}

// Approximate heap bytes of a column and of a spelling of a key, without the text.
const (
	columnBytes = 320
	keyBytes    = 96
)

// maxScratch is how many bytes the builder may hold beside what Bytes counts.
const maxScratch = 64 << 10

func (b *Builder) addColumn(c Column) *column {
	b.held += columnBytes + 2*int64(len(c.Name))
	b.cols = append(b.cols, column{Column: c, values: values{held: &b.held, hint: b.last[Fold(c.Name)]}})
	return &b.cols[len(b.cols)-1]
}

func (b *Builder) begin() {
	if cap(b.text) > maxScratch {
		b.text = nil // one large value must not hold its heap, which Bytes does not count
	}
	b.waiting, b.text, b.learned = b.waiting[:0], b.text[:0], b.learned[:0]
	b.oldCols = len(b.cols)
}

// Set adds a field to the current row. Text is the value's canonical text for a
// boolean or number (see ClassifyNumber), the string itself for a String, JSON text
// for JSON, "{}" or "[]" for Empty; class Unset is a null, which makes no cell.
// Key and text must be UTF-8; both are copied.
//
// An error is the reason why the record can't become a row; the caller aborts it:
// two keys in one column, a key with a NUL, or a value that the column can't take.
func (b *Builder) Set(key []byte, class Class, text []byte) error {
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
	switch {
	case !ok:
		return c.refuse(key, class, text, b.changes)
	case joined == c.values.class:
		c.canonical(b.row, class, text)
		return nil
	case c.Class == Unset && i >= len(b.schema):
		// A null does not name a column: sealed alone, it would leave none behind.
		c.Name = columnName(string(key))
	}
	off := len(b.text)
	b.text = append(b.text, text...)
	b.waiting = append(b.waiting, waitingCell{col: i, was: c.Class, class: class, off: off, to: len(b.text)})
	c.Class = joined
	return nil
}

// learn finds or makes the column of a key that was not spelled like this before.
func (b *Builder) learn(key []byte) (int, error) {
	if bytes.IndexByte(key, 0) >= 0 {
		return 0, fmt.Errorf("key %s contains a NUL character, which no column name can", quoted(key))
	}
	spelled := string(key)
	name := columnName(spelled)
	i, ok := b.folded[Fold(name)]
	if !ok {
		i = len(b.cols)
		b.addColumn(Column{Name: name})
		b.folded[Fold(name)] = i
	}
	b.keys[spelled] = i
	b.learned = append(b.learned, spelled)
	b.held += keyBytes + int64(len(key))
	return i, nil
}

// columnName is the column of a key: no engine takes an empty name, and the
// metadata columns are kinetl's own whether or not they are asked for, so a
// record's field keeps its column when that changes.
func columnName(key string) string {
	switch {
	case key == "":
		return "_"
	case isReserved(key):
		return key + "_"
	}
	return key
}

// EndRow ends the current row as the row of this record. It fails only when the
// table has a metadata column of a type that can't hold what goes there; the row is
// then aborted, and the error is the reason for the dead letter.
func (b *Builder) EndRow(rec *Record, shard ShardID) error {
	if b.unusable != nil {
		b.AbortRow()
		return b.unusable
	}
	for i := range b.waiting {
		w := &b.waiting[i]
		c := &b.cols[w.col]
		c.widen(c.Class)
		c.canonical(b.row, w.class, b.text[w.off:w.to])
	}
	b.addOrigin(rec, &shard)
	b.row++
	if b.row%padEvery == 0 {
		b.padAll()
	}
	b.turn++
	b.begin()
	return nil
}

// padEvery is after how many rows columns without a value get their NULLs: a column
// that few records have takes the same heap in the batch as any other, and Bytes
// must know of it before.
const padEvery = 1024

func (b *Builder) padAll() {
	for i := range b.cols {
		if c := &b.cols[i]; c.values.class != Unset && c.n < b.row {
			c.prepare(b.row, 0)
		}
	}
}

// AbortRow takes the current row back. Nothing of it is left behind but room.
func (b *Builder) AbortRow() {
	for i := len(b.waiting) - 1; i >= 0; i-- {
		w := &b.waiting[i]
		b.cols[w.col].Class = w.was
	}
	for i := range b.cols[:b.oldCols] {
		b.cols[i].truncate(b.row)
	}
	if len(b.learned) > 0 {
		b.unlearn()
	}
	b.turn++
	b.begin()
}

// unlearn forgets the keys and columns that the current row brought.
func (b *Builder) unlearn() {
	for _, key := range b.learned {
		delete(b.keys, key)
		b.held -= keyBytes + int64(len(key))
	}
	for _, c := range b.cols[b.oldCols:] {
		delete(b.folded, Fold(c.Name))
		b.held -= columnBytes + 2*int64(len(c.Name))
	}
	clear(b.cols[b.oldCols:])
	b.cols = b.cols[:b.oldCols]
	b.epoch++
}

// Rows is the number of ended rows.
func (b *Builder) Rows() int { return b.row }

// Bytes is about how much heap the builder holds, room for rows to come included.
// Sealing takes no more; the batch then holds it.
func (b *Builder) Bytes() int64 { return b.held + b.origin.held() }

// Seal returns the ended rows as a batch, in their order, with its schema and each
// row's record, and starts the next part for the same table; without rows it
// returns nothing. The schema has the columns of which the batch has a value, those
// of the table first and as the table names them, their class the join of the
// table's class and of all values'. The caller releases the batch.
func (b *Builder) Seal() (arrow.RecordBatch, Schema, []RowID) {
	b.AbortRow()
	defer b.Reset(b.schema)
	if b.row == 0 {
		return nil, nil, nil
	}
	b.remember()
	sealed := b.seal()
	return sealed.batch(b.row), sealed.schema, b.origin.rowIDs()
}

// remember keeps what the columns hold: the next part most likely holds as much.
func (b *Builder) remember() {
	b.last = make(map[string]extent, len(b.cols))
	for i := range b.cols {
		if c := &b.cols[i]; c.values.class != Unset {
			b.last[Fold(c.Name)] = extent{rows: b.row, data: len(c.data)}
		}
	}
}
