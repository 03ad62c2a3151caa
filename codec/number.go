package codec

import "strconv"

const (
	// maxDigits is how many digits a number may have to be read here: they can't
	// overflow.
	maxDigits = 18
	// maxExact bounds the numbers of up to 15 digits. Any decimal of so few digits is
	// the shortest one of the double nearest to it, since no two of them share one; so
	// its class is Double (R28). And its digits as an integer, like the power of ten to
	// divide them by, are doubles themselves, so that one division rounds once, which
	// is to the nearest.
	maxExact = 1e15
)

var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// shortNumber is v / 10^scale. Where scale is not 0, the last digit of v is not 0, so
// it is no whole number.
type shortNumber struct {
	negative bool
	v        uint64
	scale    int
}

func (n shortNumber) integer() int64 {
	if n.negative {
		return -int64(n.v)
	}
	return int64(n.v)
}

// double is a number that is not whole, if its class is Double.
func (n shortNumber) double(literal []byte) (float64, bool) {
	if n.v >= maxExact {
		f, err := strconv.ParseFloat(string(literal), 64)
		return f, err == nil && n.isShortest(f)
	}
	f := float64(n.v) / powers[n.scale]
	if n.negative {
		f = -f
	}
	return f, true
}

// isShortest reports whether no shorter decimal names f, the double nearest to n.
func (n shortNumber) isShortest(f float64) bool {
	var text [32]byte
	v, scale, point := uint64(0), 0, false
	for _, c := range strconv.AppendFloat(text[:0], f, 'f', -1, 64) {
		switch {
		case c == '.':
			point = true
		case isDigit(c):
			v = v*10 + uint64(c-'0')
			if point {
				scale++
			}
		}
	}
	return v == n.v && scale == n.scale
}

// readShort reads the number at i, if it is written without exponent and short
// enough; else end is -1.
func readShort(data []byte, i int) (n shortNumber, end int) {
	if n.negative = data[i] == '-'; n.negative {
		i++
	}
	first, v := i, uint64(0)
	for i < len(data) && isDigit(data[i]) {
		v = v*10 + uint64(data[i]-'0')
		i++
	}
	digits := i - first
	if digits == 0 || digits > maxDigits || digits > 1 && data[first] == '0' || i == len(data) {
		return n, -1
	}
	if data[i] == '.' {
		if v == 0 {
			digits = 0
		}
		i++
		for i < len(data) && isDigit(data[i]) {
			v = v*10 + uint64(data[i]-'0')
			i++
			n.scale++
		}
		if n.scale == 0 || digits+n.scale > maxDigits || i == len(data) {
			return n, -1
		}
		for n.scale > 0 && v%10 == 0 {
			v /= 10
			n.scale--
		}
	}
	if data[i]|0x20 == 'e' || n.negative && v == 0 { // -0 is no integer
		return n, -1
	}
	n.v = v
	return n, i
}
