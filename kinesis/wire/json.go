package wire

import (
	"bytes"
	"math"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/kinetl/kinetl"
)

// decodeJSON reads
//
//	{"Records":[{"SequenceNumber","ApproximateArrivalTimestamp","Data","PartitionKey"}],
//	 "NextShardIterator","MillisBehindLatest","ChildShards":[...]}
//
// or an event, where ContinuationSequenceNumber stands for the iterator, in any order,
// skipping what it does not know. Escapes and base64 are decoded in
// place: what comes out is never longer than what went in.
// Source: the AWS JSON 1.1 protocol; timestamps are epoch seconds with a fraction.
func (p *Page) decodeJSON() error {
	s := &jsonScanner{data: p.buffer}
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "Records":
			return s.array(func() error { return p.jsonRecord(s) })
		case "NextShardIterator", "ContinuationSequenceNumber":
			text, err := s.optional()
			p.Next = view(text)
			return err
		case "MillisBehindLatest":
			number, err := s.number()
			if err != nil {
				return err
			}
			ms, err := strconv.ParseInt(view(number), 10, 64)
			p.Lag = time.Duration(ms) * time.Millisecond
			return s.as(err, "MillisBehindLatest is not an integer")
		case "ChildShards":
			return s.array(func() error { p.ChildShards++; return s.skip(0) })
		}
		return s.skip(0)
	})
	if err != nil {
		return err
	}
	if s.space(); s.at != len(s.data) {
		return s.fault("something after the end")
	}
	return nil
}

// jsonRecord reads one record. It is the hot path: no closures.
func (p *Page) jsonRecord(s *jsonScanner) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	r := p.add()
	if s.next() == '}' {
		s.at++
		return nil
	}
	for {
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := s.member(r, key); err != nil {
			return err
		}
		if s.next() != ',' {
			p.Bytes += int64(len(r.Data) + len(r.PartitionKey))
			return s.expect('}')
		}
		s.at++
	}
}

func (s *jsonScanner) member(r *kinetl.Record, key []byte) error {
	switch string(key) {
	case "SequenceNumber":
		text, err := s.text()
		r.Sequence = view(text)
		return err
	case "PartitionKey":
		text, err := s.text()
		r.PartitionKey = view(text)
		return err
	case "ApproximateArrivalTimestamp":
		number, err := s.number()
		if err != nil {
			return err
		}
		ms, ok := milliseconds(number)
		if !ok {
			return s.fault("ApproximateArrivalTimestamp is not a time")
		}
		r.Arrived = time.UnixMilli(ms).UTC()
		return nil
	case "Data":
		text, err := s.text()
		if err != nil {
			return err
		}
		n, ok := decodeBase64(text)
		if !ok {
			return s.fault("Data is not base64")
		}
		r.Data = text[:n:n]
		return nil
	}
	return s.skip(0)
}

// milliseconds is a number of seconds in milliseconds, rounded down, without a
// detour over a double where the number is plain.
func milliseconds(number []byte) (int64, bool) {
	whole, fraction, _ := bytes.Cut(number, []byte("."))
	if len(whole) > 0 && len(whole) < 15 && isDigits(whole) && isDigits(fraction) {
		var ms int64
		for _, c := range whole {
			ms = ms*10 + int64(c-'0')
		}
		for i := range 3 {
			ms *= 10
			if i < len(fraction) {
				ms += int64(fraction[i] - '0')
			}
		}
		return ms, true
	}
	seconds, err := strconv.ParseFloat(string(number), 64)
	if err != nil || seconds < -1e14 || seconds > 1e14 {
		return 0, false
	}
	return int64(math.Round(seconds * 1000)), true
}

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// jsonScanner walks over JSON. It checks structure, not every grammar of values that
// are skipped: those are the service's own.
type jsonScanner struct {
	data []byte
	at   int
}

// maxDepth bounds nesting in skipped values.
const maxDepth = 64

func (s *jsonScanner) fault(what string) error {
	return &DecodeError{Format: "JSON", Offset: s.at, What: what}
}

func (s *jsonScanner) as(err error, what string) error {
	if err == nil {
		return nil
	}
	return s.fault(what)
}

func (s *jsonScanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next is the first byte of the next token, or 0 at the end.
func (s *jsonScanner) next() byte {
	s.space()
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

func (s *jsonScanner) expect(c byte) error {
	if s.next() != c {
		return s.fault("expected " + strconv.QuoteRune(rune(c)))
	}
	s.at++
	return nil
}

func (s *jsonScanner) object(member func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.next() == '}' {
		s.at++
		return nil
	}
	for {
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if s.next() != ',' {
			return s.expect('}')
		}
		s.at++
		s.space()
	}
}

// array calls element before each element. null is an empty array.
func (s *jsonScanner) array(element func() error) error {
	if s.next() == 'n' {
		return s.word("null")
	}
	if err := s.expect('['); err != nil {
		return err
	}
	if s.next() == ']' {
		s.at++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.next() != ',' {
			return s.expect(']')
		}
		s.at++
	}
}

func (s *jsonScanner) word(w string) error {
	if !bytes.HasPrefix(s.data[s.at:], []byte(w)) {
		return s.fault("expected " + w)
	}
	s.at += len(w)
	return nil
}

// optional is a text, or nothing for null.
func (s *jsonScanner) optional() ([]byte, error) {
	if s.next() == 'n' {
		return nil, s.word("null")
	}
	return s.text()
}

// text reads a string, unescaped in place.
func (s *jsonScanner) text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.at
	end := bytes.IndexByte(s.data[start:], '"')
	if end < 0 {
		return nil, s.fault("a string without an end")
	}
	raw := s.data[start : start+end]
	if bytes.IndexByte(raw, '\\') < 0 {
		s.at = start + end + 1
		return raw[:len(raw):len(raw)], nil
	}
	return s.unescape(start)
}

func (s *jsonScanner) unescape(start int) ([]byte, error) {
	out := s.data[start:start]
	for s.at = start; s.at < len(s.data); {
		switch c := s.data[s.at]; c {
		case '"':
			s.at++
			return out[:len(out):len(out)], nil
		case '\\':
			r, n := unescapeRune(s.data[s.at:])
			if n == 0 {
				return nil, s.fault("an escape that JSON does not have")
			}
			out = utf8.AppendRune(out, r)
			s.at += n
		default:
			out = append(out, c)
			s.at++
		}
	}
	return nil, s.fault("a string without an end")
}

// unescapeRune reads one escape, and both halves of a surrogate pair; n is 0 if it is none.
func unescapeRune(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		high, ok := hex4(b[2:])
		if !ok {
			return 0, 0
		}
		if utf16.IsSurrogate(high) {
			if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
				if low, ok := hex4(b[8:]); ok {
					if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
						return r, 12
					}
				}
			}
			return utf8.RuneError, 6
		}
		return high, 6
	}
	return 0, 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n), err == nil
}

func (s *jsonScanner) number() ([]byte, error) {
	s.space()
	start := s.at
	for s.at < len(s.data) && isNumberByte(s.data[s.at]) {
		s.at++
	}
	if s.at == start {
		return nil, s.fault("expected a number")
	}
	return s.data[start:s.at], nil
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E'
}

func (s *jsonScanner) skip(depth int) error {
	if depth > maxDepth {
		return s.fault("nested too deeply")
	}
	switch s.next() {
	case '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case '"':
		_, err := s.text()
		return err
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	_, err := s.number()
	return err
}
