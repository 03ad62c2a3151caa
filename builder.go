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

// slabLimit leaves room for one record of any size beyond MaxPartBytes.
const slabLimit = (1<<31 - 1) / 6

// Builder collects the rows of one part: cells by column, each with the class of
// its own value. Only Seal decides the columns' types, from the classes of all
// cells, so the order of the rows decides nothing but the refusals of TypeChanges
// (R28, R29). One goroutine uses it.
//
// Under Refuse {} and [] decide no type and are NULL beside scalars. Under Allow
// they are nested values like any other: as NULL beside scalars they would be lost
// once the column becomes JSON, and whether they are would depend on where a batch
// ended.
type Builder struct {
	schema  Schema // in force
	changes TypeChanges
	mode    MetadataMode

	cols   []column         // those of schema, new metadata columns, then those that records brought
	keys   map[string]int   // a key as it was spelled -> its column
	folded map[string]int   // a folded column name -> its column
	meta   []metadataColumn // what EndRow and Seal fill
	shards []ShardID        // that rows came from
	rows   []origin
	slab   []byte // text of all cells and origins
	held   int64

	// The current row, to take it back: an abort must leave no cell, no widened
	// class and no column behind, or a refused record would change the table.
	turn     int64 // number of the current row, aborted ones included
	undo     []undo
	learned  []string // keys first seen in it
	oldCols  int
	oldSlab  int
	unusable error // why no row can be ended: a metadata column of the table has the wrong type
}

type column struct {
	Column
	cells []cell
	turn  int64 // the row that last had a key of this column, null or not
}

// cell is a value's text: canonical for a scalar, unescaped for a string, as it
// came for a nested value.
type cell struct {
	row, off, n uint32
	class       Class
}

type undo struct {
	col   int
	class Class
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
	b.cols = make([]column, len(schema))
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
	b.held = int64(len(b.cols)) * columnBytes
	b.turn = 1
	b.begin()
}

// Approximate heap bytes of a column, of a spelling of a key, of a cell and of a
// row, growth of their slices and its RowID included.
const (
	columnBytes = 256
	keyBytes    = 96
	cellBytes   = 24
	rowBytes    = 112
)

func (b *Builder) begin() {
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
	if !ok {
		return c.refuse(key, class, text, b.changes)
	}
	if c.Class == Unset && i >= len(b.schema) {
		// A null does not name a column: sealed alone, it would leave none behind.
		c.Name = columnName(key)
	}
	b.undo = append(b.undo, undo{i, c.Class})
	c.Class = joined
	off := hold(b, text)
	c.cells = append(c.cells, cell{row: uint32(len(b.rows)), off: off, n: uint32(len(text)), class: class})
	b.held += cellBytes
	return nil
}

// learn finds or makes the column of a key that was not spelled like this before.
func (b *Builder) learn(key []byte) (int, error) {
	if bytes.IndexByte(key, 0) >= 0 {
		return 0, fmt.Errorf("key %s contains a NUL character, which no column name can", quoted(key))
	}
	name := columnName(key)
	i, ok := b.folded[Fold(name)]
	if !ok {
		i = len(b.cols)
		b.cols = append(b.cols, column{Column: Column{Name: name}})
		b.folded[Fold(name)] = i
		b.held += columnBytes + 2*int64(len(name))
	}
	b.keys[string(key)] = i
	b.learned = append(b.learned, string(key))
	b.held += keyBytes + int64(len(key))
	return i, nil
}

// columnName is the column of a key: no engine takes an empty name, and the
// metadata columns are kinetl's own whether or not they are asked for, so a
// record's field keeps its column when that changes.
func columnName(key []byte) string {
	switch {
	case len(key) == 0:
		return "_"
	case isReserved(string(key)):
		return string(key) + "_"
	}
	return string(key)
}

// hold copies text into the slab and says where it lies.
func hold[T string | []byte](b *Builder, text T) (off uint32) {
	if len(b.slab)+len(text) > slabLimit {
		panic(fmt.Sprintf("kinetl: a part passed %d bytes, its caller must seal it before", slabLimit))
	}
	off = uint32(len(b.slab))
	b.slab = append(b.slab, text...)
	b.held += int64(len(text))
	return off
}

func (b *Builder) text(off, n uint32) []byte { return b.slab[off : off+n : off+n] }

// EndRow ends the current row as the row of this record. It fails only when the
// table has a metadata column of a type that can't hold what goes there; the row is
// then aborted, and the error is the reason for the dead letter.
func (b *Builder) EndRow(rec *Record, shard ShardID) error {
	if b.unusable != nil {
		b.AbortRow()
		return b.unusable
	}
	b.rows = append(b.rows, b.origin(rec, shard))
	b.held += rowBytes
	b.turn++
	b.begin()
	return nil
}

// AbortRow takes the current row back. Nothing of it is left behind.
func (b *Builder) AbortRow() {
	for i := len(b.undo) - 1; i >= 0; i-- {
		u := b.undo[i]
		c := &b.cols[u.col]
		c.Class = u.class
		c.cells = c.cells[:len(c.cells)-1]
		b.held -= cellBytes
	}
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
	b.held -= int64(len(b.slab) - b.oldSlab)
	b.slab = b.slab[:b.oldSlab]
	b.turn++
	b.begin()
}

// Rows is the number of ended rows.
func (b *Builder) Rows() int { return len(b.rows) }

// Bytes is about how much heap the builder holds. Sealing needs as much again.
func (b *Builder) Bytes() int64 { return b.held }

// Seal returns the ended rows as a batch, in their order, with its schema and each
// row's record, and starts the next part for the same table; without rows it
// returns nothing. The schema has the columns of which the batch has a value, those
// of the table first and as the table names them, their class the join of the
// table's class and of all values'. The caller releases the batch.
func (b *Builder) Seal() (arrow.RecordBatch, Schema, []RowID) {
	b.AbortRow()
	defer b.Reset(b.schema)
	if len(b.rows) == 0 {
		return nil, nil, nil
	}
	sealed := b.seal()
	ids := b.rowIDs()
	return sealed.batch(len(b.rows)), sealed.schema, ids
}

// refuse says why the column can't take the value.
func (c *column) refuse(key []byte, class Class, text []byte, changes TypeChanges) error {
	if c.Cap {
		value := string(shorten(text, 40))
		if class == String {
			value = string(quoted(text))
		}
		native := c.Native
		if native == "" {
			native = c.Class.String()
		}
		return fmt.Errorf("field %s: %s does not fit column %s %s, which kinetl did not make", quoted(key), value, quoted([]byte(c.Name)), native)
	}
	why := ""
	if changes == Refuse {
		why = " (typeChanges: refuse)"
	}
	return fmt.Errorf("field %s: %s where the column is %s%s", quoted(key), kindNames[class.Kind()].value, kindNames[c.Class.Kind()].column, why)
}

var kindNames = map[Kind]struct{ value, column string }{
	KindNone:   {"an empty object or array", "empty"},
	KindBool:   {"boolean", "a boolean"},
	KindNumber: {"number", "a number"},
	KindString: {"string", "a string"},
	KindJSON:   {"object or array", "JSON"},
	KindText:   {"text", "text"},
	KindFixed:  {"metadata", "metadata"},
}

// quoted is text for an error: JSON-quoted and not long.
func quoted(text []byte) []byte { return QuoteJSON(nil, shorten(text, 80)) }

func shorten(text []byte, n int) []byte {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xc0 == 0x80 { // not inside a character
		n--
	}
	return append(text[:n:n], "..."...)
}
