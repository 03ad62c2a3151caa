package codec

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may nest. Validation recurses; without a
// bound, a megabyte of "[" would take a stack of hundreds.
const maxDepth = 1000

// scanner reads one JSON text (RFC 8259), once and byte by byte. It is stricter than
// the grammar in what no table can hold: invalid UTF-8, and escapes of one half of a
// surrogate pair, which name no character.
type scanner struct {
	data []byte
	at   int
}

// fail says what is wrong at the current byte.
func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("invalid JSON at byte %d: %s", s.at, fmt.Sprintf(format, args...))
}

// unexpected says that the current byte, or the end of the text, is not what.
func (s *scanner) unexpected(what string) error {
	if s.at >= len(s.data) {
		return s.fail("the text ends where %s should be", what)
	}
	if c := s.data[s.at]; c >= 0x80 && !utf8.FullRune(s.data[s.at:]) || c < ' ' {
		return s.fail("byte 0x%02x where %s should be", c, what)
	}
	r, _ := utf8.DecodeRune(s.data[s.at:])
	return s.fail("%q where %s should be", r, what)
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek is the current byte, 0 at the end. A NUL in the text starts nothing either.
func (s *scanner) peek() byte {
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	return 0
}

// eat steps over c and the space around it.
func (s *scanner) eat(c byte, what string) error {
	s.space()
	if s.peek() != c {
		return s.unexpected(what)
	}
	s.at++
	s.space()
	return nil
}

// word steps over true, false or null.
func (s *scanner) word(w string) error {
	for i := range len(w) {
		if s.peek() != w[i] {
			return s.unexpected(w)
		}
		s.at++
	}
	return nil
}

// value steps over any value, depth levels below the top.
func (s *scanner) value(depth int) error {
	switch c := s.peek(); {
	case c == '"':
		_, err := s.string()
		return err
	case c == '{', c == '[':
		return s.nested(depth)
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-', isDigit(c):
		_, err := s.number()
		return err
	}
	return s.unexpected("a value")
}

// nested steps over an object or array.
func (s *scanner) nested(depth int) error {
	if depth >= maxDepth {
		return s.fail("nested deeper than %d levels", maxDepth)
	}
	isObject := s.data[s.at] == '{'
	end, after := byte(']'), "',' or ']'"
	if isObject {
		end, after = '}', "',' or '}'"
	}
	s.at++
	s.space()
	if s.peek() == end {
		s.at++
		return nil
	}
	for {
		if isObject {
			if err := s.key(); err != nil {
				return err
			}
		}
		if err := s.value(depth + 1); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.at++
			s.space()
		case end:
			s.at++
			return nil
		default:
			return s.unexpected(after)
		}
	}
}

// key steps over a key and its colon.
func (s *scanner) key() error {
	if s.peek() != '"' {
		return s.unexpected("a key")
	}
	if _, err := s.string(); err != nil {
		return err
	}
	return s.eat(':', "':'")
}

// number steps over a number and returns it.
func (s *scanner) number() ([]byte, error) {
	from := s.at
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if err := s.digits(); err != nil {
		return nil, err
	}
	if s.peek() == '.' {
		s.at++
		if err := s.digits(); err != nil {
			return nil, err
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if err := s.digits(); err != nil {
			return nil, err
		}
	}
	return s.data[from:s.at], nil
}

func (s *scanner) digits() error {
	if !isDigit(s.peek()) {
		return s.unexpected("a digit")
	}
	for s.at < len(s.data) && isDigit(s.data[s.at]) {
		s.at++
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isPlain marks the bytes of a string that need no look.
var isPlain = func() (plain [256]bool) {
	for c := ' '; c < 0x80; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// string steps over a string and reports whether it has escapes.
func (s *scanner) string() (escaped bool, err error) {
	from := s.at
	s.at++
	for s.at < len(s.data) {
		c := s.data[s.at]
		switch {
		case isPlain[c]:
			s.at++
		case c == '"':
			s.at++
			return escaped, nil
		case c == '\\':
			escaped = true
			if _, err := s.escape(); err != nil {
				return false, err
			}
		case c < ' ':
			return false, s.fail("control character 0x%02x in a string", c)
		default:
			r, n := utf8.DecodeRune(s.data[s.at:])
			if r == utf8.RuneError && n == 1 {
				return false, s.fail("byte 0x%02x is not UTF-8", c)
			}
			s.at += n
		}
	}
	s.at = from
	return false, s.fail("this string does not end")
}

// text steps over a string and returns it without quotes and escapes: a part of the
// data where it has none, else in buf.
func (s *scanner) text(buf *[]byte) ([]byte, error) {
	from := s.at + 1
	escaped, err := s.string()
	if err != nil {
		return nil, err
	}
	raw := s.data[from : s.at-1]
	if !escaped {
		return raw, nil
	}
	*buf = unescape((*buf)[:0], raw)
	return *buf, nil
}

// escape steps over an escape and returns its character.
func (s *scanner) escape() (rune, error) {
	s.at++
	switch c := s.peek(); c {
	case '"', '\\', '/':
		s.at++
		return rune(c), nil
	case 'b':
		s.at++
		return '\b', nil
	case 'f':
		s.at++
		return '\f', nil
	case 'n':
		s.at++
		return '\n', nil
	case 'r':
		s.at++
		return '\r', nil
	case 't':
		s.at++
		return '\t', nil
	case 'u':
		return s.unicode()
	}
	return 0, s.unexpected("the rest of an escape")
}

// unicode steps over u and four hex digits, and over the second half of a pair.
func (s *scanner) unicode() (rune, error) {
	from := s.at - 1
	first, err := s.hex()
	if err != nil {
		return 0, err
	}
	if !utf16.IsSurrogate(first) {
		return first, nil
	}
	if s.peek() == '\\' && s.at+1 < len(s.data) && s.data[s.at+1] == 'u' {
		s.at++
		second, err := s.hex()
		if err != nil {
			return 0, err
		}
		if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
			return r, nil
		}
	}
	s.at = from
	return 0, s.fail("%s is half of a surrogate pair, the other half is missing", s.data[from:from+6])
}

func (s *scanner) hex() (rune, error) {
	var r rune
	for range 4 {
		s.at++
		c := s.peek()
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, s.unexpected("a hex digit")
		}
		r = r<<4 | rune(c)
	}
	s.at++
	return r, nil
}
