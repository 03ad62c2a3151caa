package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"mime"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/schemas"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"github.com/aws/smithy-go/transport/http/protocol/awsjson"

	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// A frame is, in big-endian order,
//
//	4 its length | 4 length of headers | 4 CRC-32 of those 8 | headers | payload | 4 CRC-32 of all before
//
// Source: the AWS event stream encoding, application/vnd.amazon.eventstream.
const (
	preludeSize = 12
	crcSize     = 4
	maxHeaders  = 128 << 10 // Source: the same
	// maxFrame bounds what a frame may claim to be: a record of 10 MiB in base64, and
	// as much again.
	maxFrame = 32 << 20
	// maxOther bounds frames that are no events: they come before anything is
	// reserved for them.
	maxOther = 1 << 20
)

// Subscription is the answer of one SubscribeToShard. One goroutine uses it; Close may
// be called by another.
type Subscription struct {
	body    io.ReadCloser
	prelude [preludeSize]byte
	headers []byte
	kind    frameKind
	payload int  // bytes of the waiting event's payload
	waiting bool // for Next, an event whose prelude and headers were read
}

// frameKind is what the headers say.
type frameKind struct{ message, event, contentType string }

// Subscribe calls SubscribeToShard. The end of ctx ends the call, and then the
// subscription, whose reads fail. Nothing is read ahead and no goroutine is started:
// what waits lies in the transport's buffers. Errors are the SDK's.
func Subscribe(ctx context.Context, client *kinesis.Client, in *kinesis.SubscribeToShardInput, opts ...func(*kinesis.Options)) (*Subscription, error) {
	s := &Subscription{}
	opts = append(opts, func(o *kinesis.Options) {
		o.Protocol = &subscribeProtocol{ClientProtocol: o.Protocol, into: s}
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			// It would read the body, from goroutines of its own.
			_, err := stack.Deserialize.Remove("OperationEventStreamDeserializer")
			return err
		})
	})
	if _, err := client.SubscribeToShard(ctx, in, opts...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// subscribeProtocol is the client's own protocol, but that it keeps the body of an
// event stream.
type subscribeProtocol struct {
	smithyhttp.ClientProtocol
	into *Subscription
}

func (p *subscribeProtocol) DeserializeResponse(ctx context.Context, schema *smithy.OperationSchema, types *smithy.TypeRegistry, resp *smithyhttp.Response, out smithy.Deserializable) error {
	if resp.StatusCode/100 == 2 {
		p.into.body = resp.Body
		return nil
	}
	// The SDK leaves the bodies of event streams to whoever reads them.
	defer resp.Body.Close()
	return p.ClientProtocol.DeserializeResponse(ctx, schema, types, resp, out)
}

// Close ends the subscription, and the connection where nothing else uses it.
func (s *Subscription) Close() {
	if s.body != nil {
		s.body.Close() // it was only read from: an error says nothing
	}
}

// Wait waits for the next event and returns how many bytes its payload has, without
// taking it; Next does. Both return
//   - io.EOF when the service ended the subscription, at the border of a frame,
//   - an error that wraps io.ErrUnexpectedEOF when the stream was cut inside a frame,
//   - the SDK's error types when the service ended it with an exception,
//   - *DecodeError when a frame is not what is documented,
//   - the transport's errors, those of the context among them.
func (s *Subscription) Wait() (int, error) {
	for !s.waiting {
		if err := s.readHead(); err != nil {
			return 0, err
		}
		if s.kind.message == "event" && s.kind.event == "SubscribeToShardEvent" {
			s.waiting = true
			break
		}
		if err := s.other(); err != nil {
			return 0, err
		}
	}
	return s.payload, nil
}

// Next returns the next event as a page, whose Next is the continuation number; it is
// empty in the event that ends a closed shard. See Wait for the errors.
func (s *Subscription) Next() (*Page, error) {
	if _, err := s.Wait(); err != nil {
		return nil, err
	}
	s.waiting = false
	page := newPage()
	if cap(page.buffer) < s.payload {
		page.buffer = make([]byte, s.payload)
	}
	page.buffer = page.buffer[:s.payload]
	err := s.readPayload(page.buffer)
	if err == nil && s.kind.contentType == cborType {
		err = page.decodeCBOR()
	} else if err == nil {
		err = page.decodeJSON()
	}
	if err != nil {
		page.Release()
		return nil, err
	}
	return page, nil
}

// readHead reads a frame's prelude and headers.
func (s *Subscription) readHead() error {
	switch n, err := io.ReadFull(s.body, s.prelude[:]); {
	case n == 0 && err == io.EOF:
		return io.EOF
	case err != nil:
		return cut(err)
	}
	size := binary.BigEndian.Uint32(s.prelude[0:])
	headers := binary.BigEndian.Uint32(s.prelude[4:])
	switch {
	case crc32.ChecksumIEEE(s.prelude[:8]) != binary.BigEndian.Uint32(s.prelude[8:]):
		return frameFault(8, "its prelude has another checksum")
	case headers > maxHeaders, size > maxFrame:
		return frameFault(0, "it claims to be larger than a frame can be")
	case size < preludeSize+headers+crcSize:
		return frameFault(0, "it claims to be smaller than its headers")
	}
	s.payload = int(size - preludeSize - headers - crcSize)
	if cap(s.headers) < int(headers) {
		s.headers = make([]byte, headers)
	}
	s.headers = s.headers[:headers]
	if _, err := io.ReadFull(s.body, s.headers); err != nil {
		return cut(err)
	}
	var err error
	s.kind, err = readHeaders(s.headers)
	return err
}

// readPayload reads what is left of a frame.
func (s *Subscription) readPayload(payload []byte) error {
	var crc [crcSize]byte
	if _, err := io.ReadFull(s.body, payload); err != nil {
		return cut(err)
	}
	if _, err := io.ReadFull(s.body, crc[:]); err != nil {
		return cut(err)
	}
	sum := crc32.ChecksumIEEE(s.prelude[:])
	sum = crc32.Update(crc32.Update(sum, crc32.IEEETable, s.headers), crc32.IEEETable, payload)
	if sum != binary.BigEndian.Uint32(crc[:]) {
		return frameFault(preludeSize+len(s.headers)+len(payload), "it has another checksum")
	}
	return nil
}

// other takes a frame that is no event: the initial response and what is unknown are
// skipped, everything else is the error that ended the subscription.
func (s *Subscription) other() error {
	if s.payload > maxOther {
		return frameFault(0, "it is larger than what is no event can be")
	}
	payload := make([]byte, s.payload)
	if err := s.readPayload(payload); err != nil {
		return err
	}
	if s.kind.message == "event" {
		return nil
	}
	// The SDK knows its types by their names. Its codec is not safe for several
	// subscriptions at once (smithy-go#714), hence one of its own.
	codec := awsjson.New11(schemas.Kinesis_20131202)
	var frame bytes.Buffer
	frame.Write(s.prelude[:])
	frame.Write(s.headers)
	frame.Write(payload)
	var crc [crcSize]byte
	binary.BigEndian.PutUint32(crc[:], crc32.ChecksumIEEE(frame.Bytes()))
	frame.Write(crc[:])
	_, err := codec.DeserializeEventMessage(schemas.SubscribeToShardEventStream, kinesis.TypeRegistry, &frame)
	if err == nil || errors.Is(err, io.EOF) {
		err = frameFault(preludeSize, "neither an event nor an exception")
	}
	return err
}

// cut is the end of a stream inside a frame.
func cut(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("the event stream was cut: %w", err)
}

func frameFault(offset int, what string) error {
	return &DecodeError{Format: "a frame", Offset: offset, What: what}
}

// Types of header values and their sizes; -1: two bytes of length lead.
var headerSizes = [...]int{0, 0, 1, 2, 4, 8, -1, -1, 8, 16}

const headerString = 7

// readHeaders reads the headers that matter. A header is
//
//	1 length of name | name | 1 type | value
func readHeaders(b []byte) (k frameKind, err error) {
	for at := 0; at < len(b); {
		name, rest, ok := take(b[at:], 1)
		if !ok || len(rest) == 0 || int(rest[0]) >= len(headerSizes) {
			return k, frameFault(preludeSize+at, "a header that is none")
		}
		kind := rest[0]
		rest = rest[1:]
		var value []byte
		if size := headerSizes[kind]; size < 0 {
			value, rest, ok = take(rest, 2)
		} else if ok = len(rest) >= size; ok {
			value, rest = rest[:size], rest[size:]
		}
		if !ok {
			return k, frameFault(preludeSize+at, "a header that ends early")
		}
		at = len(b) - len(rest)
		if kind != headerString {
			continue
		}
		switch string(name) {
		case ":message-type":
			k.message = string(value)
		case ":event-type":
			k.event = string(value)
		case ":content-type":
			k.contentType, _, _ = mime.ParseMediaType(string(value))
		}
	}
	return k, nil
}

// take cuts off a text that its length leads, in so many bytes.
func take(b []byte, size int) (text, rest []byte, ok bool) {
	if len(b) < size {
		return nil, nil, false
	}
	n := 0
	for _, c := range b[:size] {
		n = n<<8 | int(c)
	}
	b = b[size:]
	if len(b) < n {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
