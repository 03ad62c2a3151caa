package kinetl

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// values are one column's values in Arrow's own layout, filled row by row, so that
// sealing a batch only wraps them. A row that got no value before a later one did is
// NULL.
//
// The buffers of fixed width have room rows and are zero beyond row n; data is
// appended to.
type values struct {
	class Class // decides the layout; Unset: no value yet
	n     int   // rows so far, NULL included
	room  int   // rows that the buffers have space for
	nulls int

	valid   []byte   // a bit a row; nil while there are no nulls
	words   []uint64 // integers, doubles, instants; two words to a decimal
	offsets []int32  // text: where row i begins in data, and i+1 where it ends
	data    []byte   // text; of booleans, a bit a row

	hint extent
	held *int64 // the heap of all buffers is counted there
}

// extent is how much a column held when its last batch was sealed.
type extent struct{ rows, data int }

type layout uint8

const (
	textLayout layout = iota
	wordLayout
	decimalLayout
	bitLayout
)

// layout is the class's layout in memory.
func (c Class) layout() layout {
	switch c {
	case Bool:
		return bitLayout
	case Int53, Int64, Double, Timestamp:
		return wordLayout
	case Decimal:
		return decimalLayout
	}
	return textLayout
}

// maxTextBytes is what the offsets of one text column reach.
const maxTextBytes = math.MaxInt32

// Each of the methods that append takes the row that the value belongs to, at least n.

func (v *values) word(row int, w uint64) {
	if v.n != row || row >= v.room {
		v.prepare(row, 0)
	}
	v.words[row] = w
	v.count()
}

func (v *values) bit(row int, set bool) {
	if v.n != row || row >= v.room {
		v.prepare(row, 0)
	}
	if set {
		v.data[row>>3] |= 1 << (row & 7)
	}
	v.count()
}

func (v *values) decimal(row int, d decimal128.Num) {
	if v.n != row || row >= v.room {
		v.prepare(row, 0)
	}
	v.words[2*row], v.words[2*row+1] = d.LowBits(), uint64(d.HighBits())
	v.count()
}

// putText appends a text.
func putText[T string | []byte](v *values, row int, text T) {
	if v.n != row || row >= v.room || len(text) > cap(v.data)-len(v.data) {
		v.prepare(row, len(text))
	}
	n := len(v.data)
	v.data = v.data[:n+len(text)] // stores no pointer, unlike an append
	copy(v.data[n:], text)
	v.offsets[row+1] = int32(len(v.data))
	v.count()
}

// putQuoted appends a text as a JSON string.
func putQuoted[T string | []byte](v *values, row int, text T) {
	v.prepare(row, quotedLen(text))
	v.data = QuoteJSON(v.data, text)
	v.offsets[row+1] = int32(len(v.data))
	v.count()
}

// count ends the append of a value to row n.
func (v *values) count() {
	if v.valid != nil {
		v.valid[v.n>>3] |= 1 << (v.n & 7)
	}
	v.n++
}

// canonical appends a value of a class that v's class holds, given as its canonical
// text. {} and [] are NULL in a column of scalars.
func (v *values) canonical(row int, class Class, text []byte) {
	if class == Empty && !holdsEmpty(v.class) {
		return
	}
	switch v.class {
	case Bool:
		v.bit(row, text[0] == 't')
	case Int53, Int64:
		v.word(row, uint64(parseInt(text)))
	case Decimal:
		v.decimal(row, parseDecimal(text))
	case Double:
		v.word(row, math.Float64bits(parseDouble(text)))
	case JSON:
		if class == String {
			putQuoted(v, row, text)
			return
		}
		putText(v, row, text)
	default:
		putText(v, row, text)
	}
}

// holdsEmpty reports whether {} and [] keep their text in a column of the class.
func holdsEmpty(c Class) bool { return c == Empty || c == JSON || c == Text }

// prepare makes row the next one, NULL filled in before it, with space for a value
// of so many bytes.
func (v *values) prepare(row, bytes int) {
	if row >= v.room {
		v.setRoom(grown(v.room, row+1, v.hint.rows))
	}
	if need := len(v.data) + bytes; v.class.layout() == textLayout && need > cap(v.data) {
		if need > maxTextBytes {
			panic(fmt.Sprintf("kinetl: a column passed %d bytes, the part's caller must seal it before", maxTextBytes))
		}
		data := buffers.get(min(grown(cap(v.data), need, v.hint.data), maxTextBytes))[:len(v.data)]
		copy(data, v.data)
		*v.held += int64(cap(data) - cap(v.data))
		if v.data != nil {
			buffers.put(v.data)
		}
		v.data = data
	}
	v.pad(row)
}

// setRoom gives the buffers of fixed width space for so many rows, at least n.
func (v *values) setRoom(room int) {
	before := v.size()
	v.room = room
	if v.valid != nil {
		v.valid = resize(v.valid, bytesForBits(room))
	}
	switch v.class.layout() {
	case wordLayout:
		v.words = resize(v.words, room)
	case decimalLayout:
		v.words = resize(v.words, 2*room)
	case bitLayout:
		v.data = resize(v.data, bytesForBits(room))
	case textLayout:
		v.offsets = resize(v.offsets, room+1)
	}
	*v.held += v.size() - before
}

// pad makes the rows before row NULL that have no value. There is room for them.
func (v *values) pad(row int) {
	if v.n >= row {
		return
	}
	if v.valid == nil {
		v.valid = resize[byte](nil, bytesForBits(v.room))
		*v.held += int64(cap(v.valid))
		for i := range v.n >> 3 {
			v.valid[i] = 0xff
		}
		if v.n&7 != 0 {
			v.valid[v.n>>3] = 1<<(v.n&7) - 1
		}
	}
	if v.class.layout() == textLayout {
		end := v.offsets[v.n]
		for i := v.n + 1; i <= row; i++ {
			v.offsets[i] = end
		}
	}
	v.nulls += row - v.n
	v.n = row
}

// truncate takes back the value of row, if it has one. No later row has.
func (v *values) truncate(row int) {
	if v.n <= row {
		return
	}
	v.n = row
	if v.valid != nil {
		v.valid[row>>3] &^= 1 << (row & 7)
	}
	switch v.class.layout() {
	case wordLayout:
		v.words[row] = 0
	case decimalLayout:
		v.words[2*row], v.words[2*row+1] = 0, 0
	case bitLayout:
		v.data[row>>3] &^= 1 << (row & 7)
	case textLayout:
		v.data = v.data[:v.offsets[row]]
	}
}

// array hands the values over as an array of so many rows.
func (v *values) array(rows int) arrow.Array {
	if rows > v.room || v.room == 0 {
		v.setRoom(rows)
	}
	v.pad(rows)
	held := make([]*memory.Buffer, 2, 3)
	if v.valid != nil {
		held[0] = buffers.buffer(v.valid[:bytesForBits(rows)])
	}
	switch v.class.layout() {
	case wordLayout:
		held[1] = buffers.buffer(arrow.Uint64Traits.CastToBytes(v.words[:rows]))
	case decimalLayout:
		held[1] = buffers.buffer(arrow.Uint64Traits.CastToBytes(v.words[:2*rows]))
	case bitLayout:
		held[1] = buffers.buffer(v.data[:bytesForBits(rows)])
	case textLayout:
		if v.data == nil {
			v.data = []byte{}
		}
		held[1] = buffers.buffer(arrow.Int32Traits.CastToBytes(v.offsets[:rows+1]))
		held = append(held, buffers.buffer(v.data))
	}
	data := array.NewData(v.class.Arrow(), rows, held, nil, v.nulls, 0)
	for _, b := range held {
		if b != nil {
			b.Release() // data keeps it
		}
	}
	defer data.Release()
	*v.held -= v.size()
	*v = values{class: v.class, hint: v.hint, held: v.held}
	return array.MakeFromData(data)
}

// size is the heap that the buffers hold.
func (v *values) size() int64 {
	return int64(cap(v.valid)) + 8*int64(cap(v.words)) + 4*int64(cap(v.offsets)) + int64(cap(v.data))
}

// resize moves a buffer into one of n elements, zero beyond the copied.
func resize[T byte | int32 | uint64](old []T, n int) []T {
	var t T
	out := arrow.GetData[T](buffers.get(n * int(unsafe.Sizeof(t))))
	clear(out[copy(out, old):])
	if old != nil {
		buffers.put(arrow.GetBytes(old))
	}
	return out
}

// grown is the capacity that a buffer of have takes on to hold need. Up to what the
// last batch held, a small one goes in two steps, since every step copies; a large one
// doubles, and beyond grows little by little: what stays unused is memory that the
// budget pays for, and takes without waiting (R27).
func grown(have, need, last int) int {
	const small, large = 16, 1 << 17
	want := last + last/16
	switch {
	case need > want && have < large:
		return max(need, 2*have, small)
	case need > want:
		return max(need, have+have/4)
	case last >= large:
		return max(need, min(max(2*have, last/8), want))
	case need <= last/4:
		return max(last/4, small)
	}
	return max(want, small)
}

func bytesForBits(n int) int { return (n + 7) >> 3 }

// The parsers take canonical texts of classes that the target holds; the class says
// that they can't fail.

func parseInt(text []byte) int64 {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	var v uint64
	for _, c := range text {
		v = v*10 + uint64(c-'0')
	}
	if negative {
		return -int64(v)
	}
	return int64(v)
}

func parseDouble(text []byte) float64 {
	f, _ := strconv.ParseFloat(string(text), 64)
	return f
}

func parseDecimal(text []byte) decimal128.Num {
	if len(text) <= 18 {
		return decimal128.FromI64(parseInt(text))
	}
	v, _ := new(big.Int).SetString(string(text), 10)
	return decimal128.FromBigInt(v)
}
