package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
	"github.com/fxamacker/cbor/v2"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// subscribable is a server in memory with a stream s of one shard and two consumers.
func subscribable(t *testing.T) (srv *kinesistest.Server, c *kinesis.Client, input func(consumer string) *kinesis.SubscribeToShardInput) {
	t.Helper()
	srv = kinesistest.New(kinesistest.Options{NoLimits: true})
	if err := srv.CreateStream("s", 1); err != nil {
		t.Fatal(err)
	}
	c = client(srv)
	return srv, c, func(consumer string) *kinesis.SubscribeToShardInput {
		out, err := c.RegisterStreamConsumer(t.Context(), &kinesis.RegisterStreamConsumerInput{StreamARN: aws.String(srv.StreamARN("s")), ConsumerName: &consumer})
		if err != nil {
			t.Fatal(err)
		}
		return &kinesis.SubscribeToShardInput{
			ConsumerARN: out.Consumer.ConsumerARN, ShardId: aws.String(shard0),
			StartingPosition: &types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon},
		}
	}
}

// Events are what the SDK makes of them, field by field, and the end of a shard has
// children and no continuation number.
func TestEventsAgreeWithTheSDK(t *testing.T) {
	srv, c, input := subscribable(t)
	for i, data := range []string{`{"a":1}`, "\x00\xff\xfe", "", strings.Repeat("long", 5000), `"quoted" \ text`} {
		key := []string{"plain", `quo"te\`, "\u00fcml\u00e4ut \U0001f600", "tab\tline\n"}[i%4]
		if _, _, err := srv.Put("s", key, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	sdk, err := c.SubscribeToShard(t.Context(), input("sdk"))
	if err != nil {
		t.Fatal(err)
	}
	defer sdk.GetStream().Close()
	s, err := Subscribe(t.Context(), c, input("ours"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var last *Page
	records := 0
	for range 2 {
		want := (<-sdk.GetStream().Events()).(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
		page, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) != len(want.Records) || page.Next != aws.ToString(want.ContinuationSequenceNumber) || page.ChildShards != len(want.ChildShards) || page.Lag != time.Duration(*want.MillisBehindLatest)*time.Millisecond {
			t.Fatalf("got %+v, want %+v", page, want)
		}
		for i, r := range want.Records {
			got := page.Records[i]
			if got.Sequence != *r.SequenceNumber || got.PartitionKey != *r.PartitionKey || !bytes.Equal(got.Data, r.Data) ||
				!got.Arrived.Equal(r.ApproximateArrivalTimestamp.Truncate(time.Millisecond)) {
				t.Errorf("record %d is %+v, want %+v", i, got, r)
			}
		}
		records += len(page.Records)
		if last == nil {
			if _, err := srv.Split("s", shard0); err != nil {
				t.Fatal(err)
			}
		}
		last = page
	}
	if records != 5 || last.ChildShards != 2 || last.Next != "" {
		t.Errorf("read %d records, last %+v", records, last)
	}
	if _, err := s.Next(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// What refuses a subscription, and what ends one, is the SDK's own type.
func TestSubscribeErrorsAreTyped(t *testing.T) {
	srv, c, input := subscribable(t)
	in := input("app")
	s, err := Subscribe(t.Context(), c, in)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var used *types.ResourceInUseException
	if _, err := Subscribe(t.Context(), c, in, func(o *kinesis.Options) { o.Retryer = aws.NopRetryer{} }); !errors.As(err, &used) || used.ErrorMessage() == "" {
		t.Errorf("a second subscription: %v", err)
	}
	codes := []string{
		"ResourceInUseException", "ResourceNotFoundException", "InternalFailureException", "KMSAccessDeniedException", "KMSDisabledException",
		"KMSInvalidStateException", "KMSNotFoundException", "KMSOptInRequired", "KMSThrottlingException", "SomethingNew",
	}
	for i, code := range codes {
		remove := srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Do: kinesistest.FailStream(1, code, "so it is")})
		s, err := Subscribe(t.Context(), c, input(fmt.Sprint("app-", i)))
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.Next()
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		page.Release()
		_, err = s.Next()
		var api smithy.APIError
		if !errors.As(err, &api) || api.ErrorCode() != code || api.ErrorMessage() != "so it is" {
			t.Errorf("%s: %#v", code, err)
		}
		if errors.As(err, &used) != (i == 0) {
			t.Errorf("%s is of type %T", code, err)
		}
		s.Close()
		remove()
	}
}

// A stream that falls silent ends when its context does, or when it is closed.
func TestCloseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c, input := subscribable(t)
		srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Do: kinesistest.Silence(0)})
		s, err := Subscribe(t.Context(), c, input("app"))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, s.Close)
		began := time.Now()
		if _, err := s.Wait(); err == nil || time.Since(began) != time.Hour {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// frame encodes by the SDK's encoder.
func frame(payload string, headers ...string) []byte {
	m := eventstream.Message{Payload: []byte(payload)}
	for i := 0; i < len(headers); i += 2 {
		m.Headers.Set(headers[i], eventstream.StringValue(headers[i+1]))
	}
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func event(payload string) []byte {
	return frame(payload, ":message-type", "event", ":event-type", "SubscribeToShardEvent", ":content-type", jsonType)
}

const payload1 = `{"Records":[{"SequenceNumber":"1","PartitionKey":"k","Data":"e30=","ApproximateArrivalTimestamp":1.5}],"MillisBehindLatest":5,"ContinuationSequenceNumber":"2"}`

func subscription(b []byte) *Subscription {
	return &Subscription{body: io.NopCloser(bytes.NewReader(b))}
}

// Wherever a stream breaks off, it is told apart from one that ended: only at the
// border of a frame it may have ended.
func TestCutIsNotTheEnd(t *testing.T) {
	initial := frame("{}", ":message-type", "event", ":event-type", "initial-response")
	whole := bytes.Join([][]byte{initial, event(payload1), event(payload1)}, nil)
	border := map[int]int{0: 0, len(initial): 0, len(initial) + len(event(payload1)): 1, len(whole): 2}
	for n := range len(whole) + 1 {
		s := subscription(whole[:n])
		events := 0
		var err error
		for err == nil {
			var page *Page
			if page, err = s.Next(); err == nil {
				events++
				if len(page.Records) != 1 || page.Next != "2" {
					t.Fatalf("cut at %d: %+v", n, page)
				}
			}
		}
		want, ended := border[n]
		switch {
		case ended && (err != io.EOF || events != want):
			t.Errorf("ended at %d: %d events, then %v", n, events, err)
		case !ended && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

// A frame in which a bit has flipped is no page.
func TestChecksums(t *testing.T) {
	whole := event(payload1)
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1 << (i % 8)
		if page, err := subscription(b).Next(); err == nil || err == io.EOF {
			t.Errorf("bit flipped in byte %d: %+v, %v", i, page, err)
		}
	}
}

// What a frame claims to be is believed within bounds only, whatever its checksum says.
func TestFrameBounds(t *testing.T) {
	for name, c := range map[string]struct{ size, headers uint32 }{
		"huge":              {maxFrame + 1, 0},
		"headers too large": {maxFrame, maxHeaders + 1},
		"all headers":       {50, 40},
		"nothing":           {0, 0},
	} {
		b := binary.BigEndian.AppendUint32(nil, c.size)
		b = binary.BigEndian.AppendUint32(b, c.headers)
		b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
		var fault *DecodeError
		if _, err := subscription(b).Wait(); !errors.As(err, &fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
	big := frame(strings.Repeat("x", maxOther+1), ":message-type", "exception", ":exception-type", "X")
	var fault *DecodeError
	if _, err := subscription(big).Wait(); !errors.As(err, &fault) {
		t.Errorf("a large exception: %v", err)
	}
}

// Waiting tells the size of what waits, and takes nothing of it.
func TestWaitSaysHowMuch(t *testing.T) {
	b := event(payload1)
	head := len(b) - len(payload1) - crcSize
	s := subscription(b[:head])
	for range 2 {
		if n, err := s.Wait(); err != nil || n != len(payload1) {
			t.Fatalf("got %d, %v", n, err)
		}
	}
	s.body = io.NopCloser(bytes.NewReader(b[head:]))
	if page, err := s.Next(); err != nil || len(page.Records) != 1 {
		t.Errorf("got %+v, %v", page, err)
	}
}

// An event in CBOR says the same.
func TestEventInCBOR(t *testing.T) {
	payload, err := cbor.Marshal(map[string]any{
		"Records":                    []any{map[string]any{"SequenceNumber": "1", "PartitionKey": "k", "Data": []byte("{}"), "ApproximateArrivalTimestamp": cbor.Tag{Number: 1, Content: 1500}}},
		"MillisBehindLatest":         5,
		"ContinuationSequenceNumber": "2",
	})
	if err != nil {
		t.Fatal(err)
	}
	want, err := subscription(event(payload1)).Next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := subscription(frame(string(payload), ":message-type", "event", ":event-type", "SubscribeToShardEvent", ":content-type", cborType)).Next()
	if err != nil {
		t.Fatal(err)
	}
	if got.Next != want.Next || got.Lag != want.Lag || got.Bytes != want.Bytes || fmt.Sprint(got.Records) != fmt.Sprint(want.Records) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// sealed puts a frame around headers and payload.
func sealed(headers, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(preludeSize+len(headers)+len(payload)+crcSize))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// FuzzFrames: frames that are read as an event are what the SDK's decoder reads, and
// nothing panics. The first frame is well formed but for its headers and payload;
// anything may follow.
func FuzzFrames(f *testing.F) {
	initial := frame("{}", ":message-type", "event", ":event-type", "initial-response", ":content-type", jsonType)
	exception := frame(`{"message":"no"}`, ":message-type", "exception", ":exception-type", "ResourceInUseException", ":content-type", jsonType)
	headers := event("")[preludeSize : len(event(""))-crcSize]
	f.Add(headers, []byte(payload1), bytes.Join([][]byte{initial, event(payload1), exception}, nil))
	f.Add(headers[:20], []byte{}, event(payload1)[:60])
	f.Add(initial[preludeSize:len(initial)-crcSize-2], []byte("{}"), frame("", ":message-type", "error", ":error-code", "500", ":error-message", "no"))
	var typed eventstream.Message
	for i, v := range []eventstream.Value{
		eventstream.BoolValue(true), eventstream.BoolValue(false), eventstream.Int8Value(1), eventstream.Int16Value(2), eventstream.Int32Value(3),
		eventstream.Int64Value(4), eventstream.BytesValue("x"), eventstream.TimestampValue(time.UnixMilli(5)), eventstream.UUIDValue{},
	} {
		typed.Headers.Set(fmt.Sprint("h", i), v)
	}
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, typed); err != nil {
		f.Fatal(err)
	}
	all := b.Bytes()[preludeSize : b.Len()-crcSize]
	f.Add(append(bytes.Clone(all), headers...), []byte(payload1), []byte{})
	f.Fuzz(func(t *testing.T, headers, payload, rest []byte) {
		if len(headers) > maxHeaders {
			return
		}
		agree(t, append(sealed(headers, payload), rest...))
	})
}

// agree reads a stream by both decoders.
func agree(t *testing.T, body []byte) {
	s, oracle, d := subscription(body), bytes.NewReader(body), eventstream.NewDecoder()
	for {
		size, err := s.Wait()
		if err != nil {
			return
		}
		kind := s.kind
		page, err := s.Next()
		var bad *DecodeError
		if errors.As(err, &bad) && bad.Format != "a frame" {
			return // the payload; FuzzJSON and FuzzCBOR look at those
		}
		if err != nil {
			// The oracle must not have an event here either.
			for {
				m, oracleErr := d.Decode(oracle, nil)
				if oracleErr != nil {
					return
				}
				if isEvent(m) {
					t.Fatalf("%x: %v, where the SDK has an event", body, err)
				}
			}
		}
		m, err := d.Decode(oracle, nil)
		for err == nil && !isEvent(m) {
			m, err = d.Decode(oracle, nil)
		}
		if err != nil || len(m.Payload) != size || text(m, ":event-type") != kind.event {
			t.Fatalf("%x: read an event of %d bytes, %+v; the SDK: %v, %d bytes", body, size, kind, err, len(m.Payload))
		}
		plain := &Page{buffer: bytes.Clone(m.Payload)}
		if kind.contentType == cborType {
			err = plain.decodeCBOR()
		} else {
			err = plain.decodeJSON()
		}
		if err != nil || fmt.Sprint(plain.Records) != fmt.Sprint(page.Records) || plain.Next != page.Next {
			t.Fatalf("%x: got %+v, want %+v, %v", body, page, plain, err)
		}
	}
}

func isEvent(m eventstream.Message) bool {
	return text(m, ":message-type") == "event" && text(m, ":event-type") == "SubscribeToShardEvent"
}

func text(m eventstream.Message, header string) string {
	if v, ok := m.Headers.Get(header).(eventstream.StringValue); ok {
		return string(v)
	}
	return ""
}

func BenchmarkEvents(b *testing.B) {
	const events, records = 20, 250
	payload := strings.Replace(string(answer(records, 1024, false)), "NextShardIterator", "ContinuationSequenceNumber", 1)
	body := bytes.Repeat(event(payload), events)
	reader := bytes.NewReader(body)
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		s := &Subscription{body: io.NopCloser(reader)}
		for range events {
			page, err := s.Next()
			if err != nil || len(page.Records) != records {
				b.Fatal(err)
			}
			page.Release()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events/records, "ns/record")
}
