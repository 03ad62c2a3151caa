package kinetl

import "math"

// Find is the column that a key's values go to, if a row of this part had the key
// already: set by Set. It holds until Epoch changes.
func (b *Builder) Find(key []byte) (col int, ok bool) {
	col, ok = b.keys[string(key)]
	return col, ok
}

// Epoch changes whenever columns that Find named may be others: at Reset and Seal,
// and with the abort of a row that brought new keys.
func (b *Builder) Epoch() uint64 { return b.epoch }

// maxInt53 bounds the class Int53.
const maxInt53 = 1 << 53

// Int sets a column to an integer.
func (b *Builder) Int(col int, v int64) bool {
	c := &b.cols[col]
	if c.turn == b.turn {
		return false
	}
	small := uint64(v+maxInt53) <= 2*maxInt53
	switch {
	case c.values.class == Int53 && small, c.values.class == Int64:
		c.word(b.row, uint64(v))
	case c.values.class == Double && small:
		c.word(b.row, math.Float64bits(float64(v)))
	default:
		return false
	}
	c.turn = b.turn
	return true
}

// Double sets a column to a number of the class Double; see ClassifyNumber for what
// is none, such as a whole number.
func (b *Builder) Double(col int, v float64) bool {
	c := &b.cols[col]
	if c.values.class != Double || c.turn == b.turn {
		return false
	}
	c.word(b.row, math.Float64bits(v))
	c.turn = b.turn
	return true
}

// Bool sets a column to a boolean.
func (b *Builder) Bool(col int, v bool) bool {
	c := &b.cols[col]
	if c.values.class != Bool || c.turn == b.turn {
		return false
	}
	c.bit(b.row, v)
	c.turn = b.turn
	return true
}

// Text sets a column to a string, in UTF-8.
func (b *Builder) Text(col int, text []byte) bool {
	c := &b.cols[col]
	if c.values.class != String && c.values.class != Text || c.turn == b.turn {
		return false
	}
	putText(&c.values, b.row, text)
	c.turn = b.turn
	return true
}

// JSON sets a column to a nested value, as JSON text, that is not Empty.
func (b *Builder) JSON(col int, text []byte) bool {
	c := &b.cols[col]
	if c.values.class != JSON && c.values.class != Text || c.turn == b.turn {
		return false
	}
	putText(&c.values, b.row, text)
	c.turn = b.turn
	return true
}

// Null sets a column to null.
func (b *Builder) Null(col int) bool {
	c := &b.cols[col]
	if c.turn == b.turn {
		return false
	}
	c.turn = b.turn
	return true
}
