package codec

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The functions here step over JSON a machine word at a time. They take the usual
// and say -1 to anything else, right or wrong: the scanner then looks at the same
// bytes again, one by one, and knows what is the matter.

// Bytes of one value in all places of a word.
const (
	lows    = 0x0101010101010101
	highs   = 0x80 * lows
	spaces  = ' ' * lows
	quotes  = '"' * lows
	slashes = '\\' * lows
)

// skipString steps over a string whose first byte, behind the quote, is at i. It
// returns the place of the closing quote.
func skipString(data []byte, i int) (end int, escaped bool) {
	from := i
	for ; i <= len(data)-8; i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		// The high bit of a byte that is a quote, a backslash, a control character or
		// no ASCII. A borrow spoils only bytes above such a one.
		odd := ((w - spaces) | ((w ^ quotes) - lows) | ((w ^ slashes) - lows) | w) & highs
		if odd == 0 {
			continue
		}
		if i += bits.TrailingZeros64(odd) >> 3; data[i] == '"' {
			return i, false
		}
		break
	}
	return skipOdd(data, from, i)
}

// skipOdd is skipString for a string that is plain ASCII up to i, and may go on with
// escapes and other characters.
func skipOdd(data []byte, from, i int) (end int, escaped bool) {
	ascii := true
	for {
		if i+8 <= len(data) {
			w := binary.LittleEndian.Uint64(data[i:])
			if ((w-spaces)|((w^quotes)-lows)|((w^slashes)-lows))&^w&highs == 0 {
				ascii = ascii && w&highs == 0
				i += 8
				continue
			}
		}
		if i >= len(data) {
			return -1, false
		}
		switch c := data[i]; {
		case c >= utf8.RuneSelf:
			ascii = false
			i++
		case isPlain[c]:
			i++
		case c == '\\':
			escaped = true
			if i = skipEscape(data, i); i < 0 {
				return -1, false
			}
		case c == '"' && (ascii || utf8.Valid(data[from:i])):
			return i, escaped
		default:
			return -1, false
		}
	}
}

// skipEscape steps over the escape at i.
func skipEscape(data []byte, i int) int {
	if i+1 < len(data) && simpleEscapes[data[i+1]] != 0 {
		return i + 2
	}
	s := scanner{data: data, at: i}
	if _, err := s.escape(); err != nil {
		return -1
	}
	return s.at
}

// simpleEscapes is the character that a letter behind a backslash stands for.
var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape appends a valid string, without its quotes, to dst.
func unescape(dst, raw []byte) []byte {
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:at]...)
		if c := simpleEscapes[raw[at+1]]; c != 0 {
			dst, raw = append(dst, c), raw[at+2:]
			continue
		}
		s := scanner{data: raw, at: at}
		r, _ := s.escape()
		dst, raw = utf8.AppendRune(dst, r), raw[s.at:]
	}
}

// skipNested steps over the object or array at i, depth levels below the top.
func skipNested(data []byte, i, depth int) int {
	if depth >= maxDepth {
		return -1
	}
	isObject, end := data[i] == '{', data[i]+2 // in ASCII, the brackets are two apart
	if i = skipSpace(data, i+1); i < len(data) && data[i] == end {
		return i + 1
	}
	for {
		if isObject {
			if i = skipKey(data, i); i < 0 {
				return -1
			}
		}
		if i = skipValue(data, i, depth+1); i < 0 {
			return -1
		}
		if i = skipSpace(data, i); i >= len(data) {
			return -1
		}
		switch data[i] {
		case ',':
			i = skipSpace(data, i+1)
		case end:
			return i + 1
		default:
			return -1
		}
	}
}

func skipKey(data []byte, i int) int {
	if i >= len(data) || data[i] != '"' {
		return -1
	}
	if i, _ = skipString(data, i+1); i < 0 {
		return -1
	}
	if i = skipSpace(data, i+1); i >= len(data) || data[i] != ':' {
		return -1
	}
	return skipSpace(data, i+1)
}

func skipValue(data []byte, i, depth int) int {
	if i >= len(data) {
		return -1
	}
	switch data[i] {
	case '"':
		if i, _ = skipString(data, i+1); i < 0 {
			return -1
		}
		return i + 1
	case '{', '[':
		return skipNested(data, i, depth)
	case 't':
		return skipWord(data, i, "true")
	case 'f':
		return skipWord(data, i, "false")
	case 'n':
		return skipWord(data, i, "null")
	}
	return skipNumber(data, i)
}

func skipWord(data []byte, i int, word string) int {
	if end := i + len(word); end <= len(data) && string(data[i:end]) == word {
		return end
	}
	return -1
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && data[i] <= ' ' && isSpace(data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipNumber steps over a number.
func skipNumber(data []byte, i int) int {
	if i < len(data) && data[i] == '-' {
		i++
	}
	from := i
	if i = skipDigits(data, i); i == from || data[from] == '0' && i > from+1 {
		return -1
	}
	if i < len(data) && data[i] == '.' {
		from = i + 1
		if i = skipDigits(data, from); i == from {
			return -1
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		from = i
		if i = skipDigits(data, i); i == from {
			return -1
		}
	}
	return i
}

func skipDigits(data []byte, i int) int {
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	return i
}
