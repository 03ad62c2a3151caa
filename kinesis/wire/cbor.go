package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/kinetl/kinetl"
)

// Major types and simple values of CBOR. Source: RFC 8949.
const (
	majorUint   = 0
	majorNegint = 1
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5
	majorTag    = 6
	majorSimple = 7

	simpleNull  = 22
	simpleUndef = 23
	indefinite  = 31
	breakByte   = 0xff
)

// appendRequest encodes a request: a map of the members that are set.
func appendRequest(b []byte, in *kinesis.GetRecordsInput) []byte {
	fields := 0
	for _, set := range []bool{in.ShardIterator != nil, in.Limit != nil, in.StreamARN != nil} {
		if set {
			fields++
		}
	}
	b = appendHead(b, majorMap, uint64(fields))
	if in.ShardIterator != nil {
		b = appendText(appendText(b, "ShardIterator"), *in.ShardIterator)
	}
	if in.Limit != nil {
		b = appendHead(appendText(b, "Limit"), majorUint, uint64(max(0, *in.Limit)))
	}
	if in.StreamARN != nil {
		b = appendText(appendText(b, "StreamARN"), *in.StreamARN)
	}
	return b
}

func appendHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, majorText, uint64(len(s))), s...)
}

func newBody(b []byte) io.Reader { return bytes.NewReader(b) }

// decodeCBOR reads the members that decodeJSON does, in CBOR.
// Source: the service's application/x-amz-cbor-1.1, whose timestamps are tag 1 with
// epoch milliseconds as an integer, not the seconds of RFC 8949.
func (p *Page) decodeCBOR() error {
	s := &cborScanner{data: p.buffer}
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "Records":
			return s.array(func() error { return p.cborRecord(s) })
		case "NextShardIterator", "ContinuationSequenceNumber":
			text, err := s.text()
			p.Next = view(text)
			return err
		case "MillisBehindLatest":
			ms, err := s.integer()
			p.Lag = time.Duration(ms) * time.Millisecond
			return err
		case "ChildShards":
			return s.array(func() error { p.ChildShards++; return s.skip(0) })
		}
		return s.skip(0)
	})
	if err == nil && s.at != len(s.data) {
		err = s.fault("something after the end")
	}
	return err
}

// cborRecord reads one record. It is the hot path: no closures, and keys are told
// apart by their length first.
func (p *Page) cborRecord(s *cborScanner) error {
	major, n, open, err := s.head()
	if err != nil {
		return err
	}
	if major != majorMap {
		return s.fault("expected a map")
	}
	r := p.add()
	for i := uint64(0); open || i < n; i++ {
		if open && s.isBreak() {
			break
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.member(r, key); err != nil {
			return err
		}
	}
	p.Bytes += int64(len(r.Data) + len(r.PartitionKey))
	return nil
}

func (s *cborScanner) member(r *kinetl.Record, key []byte) error {
	switch {
	case len(key) == 4 && string(key) == "Data":
		// Text here is base64 in disguise, from a server that speaks CBOR
		// badly; taking it for the data would change every record.
		if s.at < len(s.data) && s.data[s.at]>>5 == majorText {
			return s.fault("Data is text, not bytes")
		}
		data, err := s.text()
		r.Data = data
		return err
	case len(key) == 12 && string(key) == "PartitionKey":
		text, err := s.text()
		r.PartitionKey = view(text)
		return err
	case len(key) == 14 && string(key) == "SequenceNumber":
		text, err := s.text()
		r.Sequence = view(text)
		return err
	case len(key) == 27 && string(key) == "ApproximateArrivalTimestamp":
		ms, err := s.timestamp()
		r.Arrived = time.UnixMilli(ms).UTC()
		return err
	}
	return s.skip(0)
}

// decodeError hands an error's body to the client's own protocol, as JSON.
func (p *protocol) decodeError(ctx context.Context, schema *smithy.OperationSchema, types *smithy.TypeRegistry, resp *smithyhttp.Response, out smithy.Deserializable) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	members := map[string]string{}
	s := &cborScanner{data: body}
	// A body that can't be read leaves the status to tell what went wrong.
	_ = s.object(func(key []byte) error {
		if s.at < len(s.data) && s.data[s.at]>>5 == majorText {
			text, err := s.text()
			members[string(key)] = string(text)
			return err
		}
		return s.skip(0)
	})
	text, err := json.Marshal(members)
	if err != nil {
		return err
	}
	plain := *resp.Response
	plain.Header = resp.Header.Clone()
	plain.Header.Set("Content-Type", jsonType)
	plain.Body = io.NopCloser(bytes.NewReader(text))
	return p.ClientProtocol.DeserializeResponse(ctx, schema, types, &smithyhttp.Response{Response: &plain}, out)
}

// cborScanner walks over CBOR.
type cborScanner struct {
	data []byte
	at   int
}

func (s *cborScanner) fault(what string) error {
	return &DecodeError{Format: "CBOR", Offset: s.at, What: what}
}

// head reads an item's head. Of an indefinite length n is indefinite and open is true.
func (s *cborScanner) head() (major byte, n uint64, open bool, err error) {
	if s.at >= len(s.data) {
		return 0, 0, false, s.fault("it ends early")
	}
	b := s.data[s.at]
	major, info := b>>5, b&31
	if info < 24 {
		s.at++
		return major, uint64(info), false, nil
	}
	size := 0
	switch info {
	case 24:
		size = 1
	case 25:
		size = 2
	case 26:
		size = 4
	case 27:
		size = 8
	case indefinite:
		s.at++
		return major, indefinite, true, nil
	default:
		return 0, 0, false, s.fault("a length that CBOR does not have")
	}
	if len(s.data)-s.at-1 < size {
		return 0, 0, false, s.fault("it ends early")
	}
	for _, c := range s.data[s.at+1 : s.at+1+size] {
		n = n<<8 | uint64(c)
	}
	s.at += 1 + size
	return major, n, false, nil
}

// isBreak takes the end of an indefinite item.
func (s *cborScanner) isBreak() bool {
	if s.at < len(s.data) && s.data[s.at] == breakByte {
		s.at++
		return true
	}
	return false
}

// each calls f for every element of an item whose head was read.
func (s *cborScanner) each(n uint64, open bool, f func() error) error {
	for i := uint64(0); open || i < n; i++ {
		if open && s.isBreak() {
			return nil
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (s *cborScanner) object(member func(key []byte) error) error {
	major, n, open, err := s.head()
	if err != nil {
		return err
	}
	if major != majorMap {
		return s.fault("expected a map")
	}
	return s.each(n, open, func() error {
		key, err := s.text()
		if err != nil {
			return err
		}
		return member(key)
	})
}

// array calls element before each element. null is an empty array.
func (s *cborScanner) array(element func() error) error {
	major, n, open, err := s.head()
	switch {
	case err != nil:
		return err
	case major == majorSimple && (n == simpleNull || n == simpleUndef):
		return nil
	case major != majorArray:
		return s.fault("expected an array")
	}
	return s.each(n, open, element)
}

// text reads a byte string or a text string; null is nothing. Strings in pieces are
// joined in place.
func (s *cborScanner) text() ([]byte, error) {
	if s.at < len(s.data) {
		// A short string whose head is one byte, as all keys are.
		if b := s.data[s.at]; b>>5 == majorText && b&31 < 24 {
			start, end := s.at+1, s.at+1+int(b&31)
			if end <= len(s.data) && isASCII(s.data[start:end]) {
				s.at = end
				return s.data[start:end:end], nil
			}
		}
	}
	major, n, open, err := s.head()
	switch {
	case err != nil:
		return nil, err
	case major == majorSimple && (n == simpleNull || n == simpleUndef):
		return nil, nil
	case major != majorBytes && major != majorText:
		return nil, s.fault("expected text or bytes")
	case open:
		return s.pieces(major)
	case n > uint64(len(s.data)-s.at):
		return nil, s.fault("it ends early")
	}
	out := s.data[s.at : s.at+int(n) : s.at+int(n)]
	s.at += int(n)
	if major == majorText && !isASCII(out) && !utf8.Valid(out) {
		return nil, s.fault("text that is not UTF-8")
	}
	return out, nil
}

func isASCII(b []byte) bool {
	if len(b) < 8 {
		var all byte
		for _, c := range b {
			all |= c
		}
		return all < utf8.RuneSelf
	}
	all := binary.NativeEndian.Uint64(b[len(b)-8:])
	for ; len(b) > 8; b = b[8:] {
		all |= binary.NativeEndian.Uint64(b)
	}
	return all&0x8080808080808080 == 0
}

func (s *cborScanner) pieces(major byte) ([]byte, error) {
	out := s.data[s.at:s.at]
	for !s.isBreak() {
		if s.at < len(s.data) && (s.data[s.at]>>5 != major || s.data[s.at]&31 == indefinite) {
			return nil, s.fault("a piece of another type")
		}
		piece, err := s.text()
		if err != nil {
			return nil, err
		}
		out = append(out, piece...)
	}
	return out[:len(out):len(out)], nil
}

func (s *cborScanner) integer() (int64, error) {
	major, n, open, err := s.head()
	switch {
	case err != nil:
		return 0, err
	case open || major > majorNegint || n > math.MaxInt64:
		return 0, s.fault("expected an integer")
	case major == majorNegint:
		return -1 - int64(n), nil
	}
	return int64(n), nil
}

// timestamp is epoch milliseconds, as an integer or as a double, tagged or not.
func (s *cborScanner) timestamp() (int64, error) {
	if s.at < len(s.data) && s.data[s.at]>>5 == majorTag {
		if _, _, _, err := s.head(); err != nil {
			return 0, err
		}
	}
	if s.at < len(s.data) && s.data[s.at] == majorSimple<<5|27 {
		_, bits, _, err := s.head()
		f := math.Float64frombits(bits)
		if err != nil || !(math.Abs(f) < 1e17) {
			return 0, s.fault("expected a time")
		}
		return int64(f), nil
	}
	return s.integer()
}

func (s *cborScanner) skip(depth int) error {
	if depth > maxDepth {
		return s.fault("nested too deeply")
	}
	if s.at < len(s.data) {
		if major := s.data[s.at] >> 5; major == majorBytes || major == majorText {
			_, err := s.text()
			return err
		}
	}
	major, n, open, err := s.head()
	if err != nil {
		return err
	}
	switch major {
	case majorArray:
		return s.each(n, open, func() error { return s.skip(depth + 1) })
	case majorMap:
		return s.each(n, open, func() error {
			if err := s.skip(depth + 1); err != nil {
				return err
			}
			return s.skip(depth + 1)
		})
	case majorTag:
		return s.skip(depth + 1)
	}
	if open {
		return s.fault("a break without a beginning")
	}
	return nil
}
