package postgres

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// A numeric on the wire: the number of digits to the base of 10000, the weight of the
// first (its power of 10000), the sign, the number of decimals to show, the digits.
// Source: numeric_recv in PostgreSQL's src/backend/utils/adt/numeric.c.
const negativeSign = 0x4000

func appendNumericHeader(dst []byte, groups, weight int, isNegative bool, scale int) []byte {
	sign := uint16(0)
	if isNegative {
		sign = negativeSign
	}
	for _, v := range [...]uint16{uint16(groups), uint16(weight), sign, uint16(scale)} {
		dst = binary.BigEndian.AppendUint16(dst, v)
	}
	return dst
}

// appendDecimal appends an integer of up to 38 digits as a numeric.
func appendDecimal(dst []byte, d decimal128.Num) []byte {
	hi, lo := uint64(d.HighBits()), d.LowBits()
	isNegative := d.HighBits() < 0
	if isNegative {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	var groups [10]uint16 // the last first
	n := 0
	for hi != 0 || lo != 0 {
		var rest uint64
		hi, rest = hi/10000, hi%10000
		lo, rest = bits.Div64(rest, lo, 10000)
		groups[n] = uint16(rest)
		n++
	}
	first := 0
	for first < n && groups[first] == 0 {
		first++
	}
	dst = appendNumericHeader(dst, n-first, n-1, isNegative, 0)
	for i := n - 1; i >= first; i-- {
		dst = binary.BigEndian.AppendUint16(dst, groups[i])
	}
	return dst
}

// number is +-0.ddd * 10^point; digits have no zeros at either end, and none is zero.
type number struct {
	negative bool
	digits   []byte
	point    int
}

// What a numeric without limits of its own holds. Source: the manual's page of numeric
// types.
const (
	maxWhole    = 131072
	maxDecimals = 16383
)

// parseNumber reads a number of JSON's grammar. Its digits lie in scratch until that is
// used again. False: its exponent is beyond every numeric.
func parseNumber(scratch *[]byte, text []byte) (number, bool) {
	var n number
	if text[0] == '-' {
		n.negative = true
		text = text[1:]
	}
	mantissa, exponent := text, []byte(nil)
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		mantissa, exponent = text[:e], text[e+1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte{'.'})
	*scratch = append(append((*scratch)[:0], whole...), fraction...)
	trimmed := bytes.TrimLeft(*scratch, "0")
	n.point = len(whole) - (len(*scratch) - len(trimmed))
	n.digits = bytes.TrimRight(trimmed, "0")
	if len(n.digits) == 0 {
		n.point = 0
		return n, true
	}
	if len(exponent) > 0 {
		e, err := strconv.Atoi(string(exponent))
		if err != nil || e > 1<<24 || e < -1<<24 {
			return n, false
		}
		n.point += e
	}
	return n, true
}

// decimals is the number of decimals, below zero where the last digits are zeros.
func (n number) decimals() int {
	if len(n.digits) == 0 {
		return 0
	}
	return len(n.digits) - n.point
}

// fits reports whether a numeric of this typmod holds the number exactly. The server
// would round it.
func (n number) fits(typmod int32) bool {
	if typmod < 4 {
		return n.point <= maxWhole && n.decimals() <= maxDecimals
	}
	precision := int(typmod-4) >> 16
	scale := int(typmod-4) & 0x7ff // of 11 bits with a sign, since PostgreSQL 15
	if scale >= 1<<10 {
		scale -= 1 << 11
	}
	return len(n.digits) == 0 || n.point <= precision-scale && n.decimals() <= scale
}

// appendNumeric appends the number as a numeric, which holds it.
func (n number) appendNumeric(dst []byte) []byte {
	if len(n.digits) == 0 {
		return appendNumericHeader(dst, 0, 0, false, 0)
	}
	// The point falls between two groups of four digits.
	first := (n.point + 3) &^ 3 // power of ten in front of the first group
	lead := first - n.point     // zeros in front of the first digit
	groups := (lead + len(n.digits) + 3) / 4
	dst = appendNumericHeader(dst, groups, first/4-1, n.negative, max(n.decimals(), 0))
	for g := range groups {
		v := uint16(0)
		for i := 4*g - lead; i < 4*g-lead+4; i++ {
			v *= 10
			if i >= 0 && i < len(n.digits) {
				v += uint16(n.digits[i] - '0')
			}
		}
		dst = binary.BigEndian.AppendUint16(dst, v)
	}
	return dst
}
