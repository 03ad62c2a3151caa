package kinetl

import (
	"bytes"
	"math"
	"strconv"
)

// decimalDigits is what the class Decimal holds.
const decimalDigits = 38

// ClassifyNumber returns the smallest class that holds a JSON number exactly and
// the number's canonical text. Both depend on the value, never on its spelling: 1,
// 1.0 and 10e-1 are the integer 1. Negative zero is a Double, since no integer is
// it. The text may be the literal's own bytes.
//
// An integer of up to 38 digits is written in plain digits, any other number the
// way FormatDouble writes, over all of its significant digits. That is what an
// engine makes of a stored BIGINT, DECIMAL or DOUBLE when its column is converted
// to text, so a value reads the same whenever its column was widened (R28).
//
// The class is Unset if the exponent has more than 18 digits; such numbers are
// refused. Literal must be a number of the JSON grammar.
func ClassifyNumber(literal []byte) (class Class, canonical []byte) {
	digits := literal
	if digits[0] == '-' {
		digits = digits[1:]
	}
	point := bytes.IndexByte(digits, '.')
	switch {
	case bytes.IndexByte(digits, 'e') >= 0 || bytes.IndexByte(digits, 'E') >= 0:
	case point < 0:
		if zero := digits[0] == '0'; len(digits) <= decimalDigits && !(zero && len(literal) > len(digits)) {
			return integerClass(digits, len(literal) > len(digits)), literal
		}
	case isPlainDouble(digits, point):
		return Double, literal
	}
	n, ok := parseNumber(literal)
	if !ok {
		return Unset, nil
	}
	return n.classify()
}

// isPlainDouble reports whether digits with a point are canonical and a Double at
// first sight: two different decimals of up to 15 digits are never the same double,
// so no other decimal that short can be the double's shortest form.
func isPlainDouble(digits []byte, point int) bool {
	if len(digits) > 16 || digits[len(digits)-1] == '0' {
		return false
	}
	if digits[0] != '0' {
		return true
	}
	// Below 1e-4 the canonical form has an exponent.
	for _, c := range digits[point+1 : min(len(digits), point+5)] {
		if c != '0' {
			return true
		}
	}
	return false
}

// integerClass is the class of an integer of 1 to 38 digits.
func integerClass(digits []byte, negative bool) Class {
	if len(digits) <= 15 {
		return Int53
	}
	if len(digits) > 19 {
		return Decimal
	}
	var v uint64
	for _, c := range digits {
		v = v*10 + uint64(c-'0')
	}
	switch {
	case v <= 1<<53:
		return Int53
	case v <= math.MaxInt64, negative && v == 1<<63:
		return Int64
	}
	return Decimal
}

// number is +-d.ddd * 10^exp. Digits has no zeros at either end; none at all is zero.
type number struct {
	negative bool
	digits   []byte
	exp      int64
}

// parseNumber takes a number apart; false: the exponent has more than 18 digits.
func parseNumber(literal []byte) (n number, ok bool) {
	if literal[0] == '-' {
		n.negative = true
		literal = literal[1:]
	}
	mantissa, exponent := literal, []byte(nil)
	if e := bytes.IndexAny(literal, "eE"); e >= 0 {
		mantissa, exponent = literal[:e], literal[e+1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte{'.'})
	all := append(append(make([]byte, 0, len(mantissa)), whole...), fraction...)
	n.digits = bytes.TrimLeft(all, "0")
	n.exp = int64(len(whole) - 1 - (len(all) - len(n.digits)))
	n.digits = bytes.TrimRight(n.digits, "0")
	if len(n.digits) == 0 || len(exponent) == 0 {
		return n, true
	}
	down := exponent[0] == '-'
	exponent = bytes.TrimLeft(bytes.TrimLeft(exponent, "+-"), "0")
	if len(exponent) > 18 {
		return n, false
	}
	var e int64
	for _, c := range exponent {
		e = e*10 + int64(c-'0')
	}
	if down {
		e = -e
	}
	n.exp += e
	return n, true
}

func (n number) classify() (Class, []byte) {
	switch integer := n.exp >= int64(len(n.digits))-1; {
	case len(n.digits) == 0 && n.negative:
		return Double, []byte("-0")
	case len(n.digits) == 0:
		return Int53, []byte("0")
	case integer && n.exp < decimalDigits:
		text := n.plain(nil)
		digits := text
		if n.negative {
			digits = text[1:]
		}
		return integerClass(digits, n.negative), text
	case n.isDouble():
		return Double, n.append(nil)
	}
	return Number, n.append(nil)
}

// isDouble reports whether the number's digits are the shortest that name the
// double nearest to it.
func (n number) isDouble() bool {
	if len(n.digits) > 17 || n.exp < -324 || n.exp > 308 {
		return false
	}
	n.negative = false
	f, err := strconv.ParseFloat(string(n.scientific(nil)), 64)
	if err != nil || f == 0 {
		return false
	}
	d := numberOf(f)
	return d.exp == n.exp && bytes.Equal(d.digits, n.digits)
}

// numberOf is the shortest decimal that names a positive finite double.
func numberOf(f float64) number {
	n, _ := parseNumber(strconv.AppendFloat(make([]byte, 0, 32), f, 'e', -1, 64))
	return n
}

// append appends plain notation for exponents from -4 to 15, else scientific.
func (n number) append(dst []byte) []byte {
	if n.exp >= -4 && n.exp < 16 {
		return n.plain(dst)
	}
	return n.scientific(dst)
}

func (n number) plain(dst []byte) []byte {
	dst = n.sign(dst)
	if n.exp < 0 {
		dst = append(dst, "0."...)
		dst = appendZeros(dst, -n.exp-1)
		return append(dst, n.digits...)
	}
	whole := n.exp + 1
	if int64(len(n.digits)) <= whole {
		return appendZeros(append(dst, n.digits...), whole-int64(len(n.digits)))
	}
	dst = append(append(dst, n.digits[:whole]...), '.')
	return append(dst, n.digits[whole:]...)
}

func (n number) scientific(dst []byte) []byte {
	dst = append(n.sign(dst), n.digits[0])
	if len(n.digits) > 1 {
		dst = append(append(dst, '.'), n.digits[1:]...)
	}
	exp, sign := n.exp, byte('+')
	if exp < 0 {
		exp, sign = -exp, '-'
	}
	dst = append(dst, 'e', sign)
	if exp < 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, exp, 10)
}

func (n number) sign(dst []byte) []byte {
	if n.negative {
		return append(dst, '-')
	}
	return dst
}

func appendZeros(dst []byte, n int64) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// FormatDouble is the canonical text of a double: the fewest digits that name it,
// plain for decimal exponents from -4 to 15, else like 1.5e-07 and 1e+16. It is
// DuckDB's text of a DOUBLE without a final ".0". Values that JSON does not have
// are "nan", "inf" and "-inf".
func FormatDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0 && math.Signbit(f):
		return "-0"
	case f == 0:
		return "0"
	}
	n := numberOf(math.Abs(f))
	n.negative = f < 0
	return string(n.append(make([]byte, 0, 32)))
}

// QuoteJSON appends s as a JSON string with the escapes of yyjson's default writer,
// which is DuckDB's: quote, backslash, \b \f \n \r \t, other control characters as
// \u00XX in upper-case hex, and nothing else.
func QuoteJSON[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}

// quotedLen is how many bytes QuoteJSON appends.
func quotedLen[T string | []byte](s T) int {
	n := len(s) + 2
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\b', '\f', '\n', '\r', '\t':
			n++
		default:
			if c < ' ' {
				n += 5
			}
		}
	}
	return n
}

const hexDigits = "0123456789ABCDEF"
