package kinetl

import (
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// exactDecoder is the plain JSON decoder, byte by byte and one Set a field, that the
// quick one of package codec must agree with.
type exactDecoder struct {
	exactScanner
	keyBuf, textBuf []byte
}

var errExactEmpty = errors.New("empty payload")

func (d *exactDecoder) Decode(payload []byte, row *exactBuilder) error {
	if len(payload) == 0 {
		return errExactEmpty
	}
	d.exactScanner = exactScanner{data: payload}
	defer func() { d.data = nil }() // the payload belongs to its fetch
	d.space()
	var err error
	if d.peek() == '{' {
		err = d.object(row)
	} else {
		err = d.single(row)
	}
	if err != nil {
		return err
	}
	d.space()
	if d.at < len(d.data) {
		return d.unexpected("the end of the text")
	}
	return nil
}

// object sets a cell for each field.
func (d *exactDecoder) object(row *exactBuilder) error {
	d.at++
	d.space()
	if d.peek() == '}' {
		d.at++
		return nil
	}
	for {
		if d.peek() != '"' {
			return d.unexpected("a key")
		}
		key, err := d.text(&d.keyBuf)
		if err != nil {
			return err
		}
		if err := d.eat(':', "':'"); err != nil {
			return err
		}
		class, text, err := d.cell(1)
		if err != nil {
			return err
		}
		if err := row.Set(key, class, text); err != nil {
			return err
		}
		d.space()
		switch d.peek() {
		case ',':
			d.at++
			d.space()
		case '}':
			d.at++
			return nil
		default:
			return d.unexpected("',' or '}'")
		}
	}
}

// single sets the column "value" to a payload that is no object.
func (d *exactDecoder) single(row *exactBuilder) error {
	class, text, err := d.cell(0)
	switch {
	case err != nil:
		return err
	case class == Unset:
		text = []byte("null")
	case class == String:
		text = QuoteJSON(nil, text)
	}
	return row.Set([]byte("value"), JSON, text)
}

// cell steps over a value, depth levels below the top, and returns what Builder.Set
// takes.
func (d *exactDecoder) cell(depth int) (Class, []byte, error) {
	from := d.at
	switch c := d.peek(); {
	case c == '"':
		text, err := d.text(&d.textBuf)
		return String, text, err
	case c == '-', exactIsDigit(c):
		literal, err := d.number()
		if err != nil {
			return 0, nil, err
		}
		class, text := ClassifyNumber(literal)
		if class == Unset {
			d.at = from
			return 0, nil, d.fail("a number with an exponent of more than 18 digits")
		}
		return class, text, nil
	case c == '{', c == '[':
		err := d.nested(depth)
		text := d.data[from:d.at]
		if err != nil {
			return 0, nil, err
		}
		if empty, ok := exactEmptyText(text); ok {
			return Empty, empty, nil
		}
		return JSON, text, nil
	}
	err := d.value(depth)
	text := d.data[from:d.at]
	switch {
	case err != nil:
		return 0, nil, err
	case text[0] == 'n':
		return Unset, nil, nil
	}
	return Bool, text, nil
}

// exactEmptyText is the canonical text of an object or array without content.
func exactEmptyText(nested []byte) ([]byte, bool) {
	for _, c := range nested[1 : len(nested)-1] {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return nil, false
		}
	}
	if nested[0] == '{' {
		return []byte("{}"), true
	}
	return []byte("[]"), true
}

// exactMaxDepth is how deep arrays and objects may nest. Validation recurses; without a
// bound, a megabyte of "[" would take a stack of hundreds.
const exactMaxDepth = 1000

// exactScanner reads one JSON text (RFC 8259), once and byte by byte. It is stricter than
// the grammar in what no table can hold: invalid UTF-8, and escapes of one half of a
// surrogate pair, which name no character.
type exactScanner struct {
	data []byte
	at   int
}

// fail says what is wrong at the current byte.
func (s *exactScanner) fail(format string, args ...any) error {
	return fmt.Errorf("invalid JSON at byte %d: %s", s.at, fmt.Sprintf(format, args...))
}

// unexpected says that the current byte, or the end of the text, is not what.
func (s *exactScanner) unexpected(what string) error {
	if s.at >= len(s.data) {
		return s.fail("the text ends where %s should be", what)
	}
	if c := s.data[s.at]; c >= 0x80 && !utf8.FullRune(s.data[s.at:]) || c < ' ' {
		return s.fail("byte 0x%02x where %s should be", c, what)
	}
	r, _ := utf8.DecodeRune(s.data[s.at:])
	return s.fail("%q where %s should be", r, what)
}

func (s *exactScanner) space() {
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
func (s *exactScanner) peek() byte {
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	return 0
}

// eat steps over c and the space around it.
func (s *exactScanner) eat(c byte, what string) error {
	s.space()
	if s.peek() != c {
		return s.unexpected(what)
	}
	s.at++
	s.space()
	return nil
}

// word steps over true, false or null.
func (s *exactScanner) word(w string) error {
	for i := range len(w) {
		if s.peek() != w[i] {
			return s.unexpected(w)
		}
		s.at++
	}
	return nil
}

// value steps over any value, depth levels below the top.
func (s *exactScanner) value(depth int) error {
	switch c := s.peek(); {
	case c == '"':
		_, err := s.skipString()
		return err
	case c == '{', c == '[':
		return s.nested(depth)
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-', exactIsDigit(c):
		_, err := s.number()
		return err
	}
	return s.unexpected("a value")
}

// nested steps over an object or array.
func (s *exactScanner) nested(depth int) error {
	if depth >= exactMaxDepth {
		return s.fail("nested deeper than %d levels", exactMaxDepth)
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
func (s *exactScanner) key() error {
	if s.peek() != '"' {
		return s.unexpected("a key")
	}
	if _, err := s.skipString(); err != nil {
		return err
	}
	return s.eat(':', "':'")
}

// number steps over a number and returns it.
func (s *exactScanner) number() ([]byte, error) {
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

func (s *exactScanner) digits() error {
	if !exactIsDigit(s.peek()) {
		return s.unexpected("a digit")
	}
	for s.at < len(s.data) && exactIsDigit(s.data[s.at]) {
		s.at++
	}
	return nil
}

func exactIsDigit(c byte) bool { return '0' <= c && c <= '9' }

// exactIsPlain marks the bytes of a string that need no look.
var exactIsPlain = func() (plain [256]bool) {
	for c := ' '; c < 0x80; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// skipString steps over a string and reports whether it has escapes.
func (s *exactScanner) skipString() (escaped bool, err error) {
	from := s.at
	s.at++
	for s.at < len(s.data) {
		c := s.data[s.at]
		switch {
		case exactIsPlain[c]:
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
func (s *exactScanner) text(buf *[]byte) ([]byte, error) {
	from := s.at + 1
	escaped, err := s.skipString()
	if err != nil {
		return nil, err
	}
	raw := s.data[from : s.at-1]
	if !escaped {
		return raw, nil
	}
	out := (*buf)[:0]
	in := exactScanner{data: raw}
	for in.at < len(raw) {
		if c := raw[in.at]; c != '\\' {
			out = append(out, c)
			in.at++
			continue
		}
		r, _ := in.escape()
		out = utf8.AppendRune(out, r)
	}
	*buf = out
	return out, nil
}

// escape steps over an escape and returns its character.
func (s *exactScanner) escape() (rune, error) {
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
func (s *exactScanner) unicode() (rune, error) {
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

func (s *exactScanner) hex() (rune, error) {
	var r rune
	for range 4 {
		s.at++
		c := s.peek()
		switch {
		case exactIsDigit(c):
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
