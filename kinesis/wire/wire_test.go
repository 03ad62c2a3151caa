package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/fxamacker/cbor/v2"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

func client(srv *kinesistest.Server) *kinesis.Client {
	return kinesis.New(kinesis.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://kinesis.test"),
		HTTPClient:  &http.Client{Transport: srv.Transport()},
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
}

func iterator(t *testing.T, c *kinesis.Client, shard string) *string {
	t.Helper()
	it, err := c.GetShardIterator(t.Context(), &kinesis.GetShardIteratorInput{
		StreamName: aws.String("s"), ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		t.Fatal(err)
	}
	return it.ShardIterator
}

const shard0 = "shardId-000000000000"

// In either format a page is what the SDK makes of the same answer, field by field.
func TestAgreesWithTheSDK(t *testing.T) {
	srv := kinesistest.New(kinesistest.Options{NoLimits: true})
	if err := srv.CreateStream("s", 1); err != nil {
		t.Fatal(err)
	}
	for i, data := range []string{`{"a":1}`, "\x00\xff\xfe", "x", strings.Repeat("long", 5000), `"quoted" \ text`} {
		key := []string{"plain", `quo"te\`, "\u00fcml\u00e4ut \U0001f600", "tab\tline\n"}[i%4]
		if _, _, err := srv.Put("s", key, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := srv.Split("s", shard0); err != nil {
		t.Fatal(err)
	}
	c := client(srv)
	in := &kinesis.GetRecordsInput{ShardIterator: iterator(t, c, shard0)}
	want, err := c.GetRecords(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	caller := NewCaller(c, srv.StreamARN("s"))
	for n := range 4 { // the first of each format goes through the SDK
		useCBOR := n%2 == 1
		page, err := caller.GetRecords(t.Context(), *in.ShardIterator, 10_000, useCBOR)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) != 5 || page.ChildShards != 2 || page.Next != "" || page.Lag != 0 {
			t.Fatalf("cbor %v: %+v", useCBOR, page)
		}
		for i, r := range want.Records {
			got := page.Records[i]
			if got.Sequence != *r.SequenceNumber || got.PartitionKey != *r.PartitionKey || !bytes.Equal(got.Data, r.Data) ||
				!got.Arrived.Equal(r.ApproximateArrivalTimestamp.Truncate(time.Millisecond)) {
				t.Errorf("cbor %v: record %d is %+v, want %+v", useCBOR, i, got, r)
			}
		}
	}
}

// jsonPage is the oracle for JSON: the same members read by encoding/json.
type jsonPage struct {
	Records []struct {
		SequenceNumber              string
		PartitionKey                string
		Data                        []byte
		ApproximateArrivalTimestamp json.Number
	}
	NextShardIterator  *string
	MillisBehindLatest int64
	ChildShards        []any
}

// FuzzJSON: what encoding/json reads without complaint and without oddities that
// the service does not have is read alike; nothing panics.
func FuzzJSON(f *testing.F) {
	f.Add(`{"Records":[{"SequenceNumber":"1","PartitionKey":"k","Data":"e30=","ApproximateArrivalTimestamp":1.6E9}],"NextShardIterator":"x","MillisBehindLatest":5,"ChildShards":[{"a":[1,{"b":null}]}]}`)
	f.Add(`{"Records":null,"MillisBehindLatest":0,"x":{"y":[true,false,null,"\ud83d\ude00\n"]}}`)
	f.Add(`{"Records":[{"Data":"AAEC","PartitionKey":"\u00e4\\\"","ApproximateArrivalTimestamp":1764547200.123}]}`)
	f.Add(`{"Records":[{}],"0aaa0aaaaa0aaaaa":0,"ChildShArds":[0]}`)
	f.Fuzz(func(t *testing.T, body string) {
		page := &Page{buffer: []byte(body)}
		err := page.decodeJSON()
		var want jsonPage
		d := json.NewDecoder(strings.NewReader(body))
		if d.Decode(&want) != nil || !utf8.ValidString(body) || hasOddKeys(body) {
			return
		}
		if err != nil {
			return // strictness about what the service never sends is no fault
		}
		if len(page.Records) != len(want.Records) || page.Next != aws.ToString(want.NextShardIterator) || page.ChildShards != len(want.ChildShards) {
			t.Fatalf("%q: got %+v, want %+v", body, page, want)
		}
		for i, r := range want.Records {
			got := page.Records[i]
			if got.Sequence != r.SequenceNumber || got.PartitionKey != r.PartitionKey || !bytes.Equal(got.Data, r.Data) {
				t.Fatalf("%q: record %d is %+v, want %+v", body, i, got, r)
			}
		}
	})
}

var members = []string{"Records", "SequenceNumber", "PartitionKey", "Data", "ApproximateArrivalTimestamp", "NextShardIterator", "MillisBehindLatest", "ChildShards"}

// hasOddKeys reports members that the oracle takes otherwise, and rightly so: it takes
// a name in other letters for ours, the last one of two, and knows no events.
func hasOddKeys(body string) bool {
	for _, key := range members {
		folded := strings.Count(strings.ToLower(body), strings.ToLower(key))
		if folded > 1 || folded != strings.Count(body, key) {
			return true
		}
	}
	return !strings.Contains(body, "Records") || strings.ContainsAny(body, "\u017f\u212a") ||
		strings.Contains(body, `\u`) || strings.Contains(body, "ContinuationSequenceNumber")
}

// FuzzCBOR: what an independent decoder reads is read alike; nothing panics.
func FuzzCBOR(f *testing.F) {
	record := map[string]any{
		"SequenceNumber": "495", "PartitionKey": "k", "Data": []byte("{}"),
		"ApproximateArrivalTimestamp": cbor.Tag{Number: 1, Content: uint64(1764547200123)},
	}
	for _, v := range []any{
		map[string]any{"Records": []any{record, record}, "NextShardIterator": "x", "MillisBehindLatest": 7},
		map[string]any{"Records": []any{}, "MillisBehindLatest": 0, "ChildShards": []any{map[string]any{"ShardId": "a"}}, "Other": []any{1.5, true, nil}},
	} {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xbf, 0x67, 'R', 'e', 'c', 'o', 'r', 'd', 's', 0x9f, 0xbf, 0x64, 'D', 'a', 't', 'a', 0x5f, 0x41, 'a', 0x41, 'b', 0xff, 0xff, 0xff, 0xff})
	mode, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, TimeTag: cbor.DecTagIgnored, FieldNameMatching: cbor.FieldNameMatchingCaseSensitive}.DecMode()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		page := &Page{buffer: bytes.Clone(body)}
		if page.decodeCBOR() != nil {
			return
		}
		var want struct {
			Records []struct {
				SequenceNumber string
				PartitionKey   string
				Data           []byte
			}
			NextShardIterator string
			ChildShards       []cbor.RawMessage
		}
		if mode.Unmarshal(body, &want) != nil {
			return
		}
		if len(page.Records) != len(want.Records) || page.Next != want.NextShardIterator || page.ChildShards != len(want.ChildShards) {
			t.Fatalf("%x: got %+v, want %+v", body, page, want)
		}
		for i, r := range want.Records {
			got := page.Records[i]
			if got.Sequence != r.SequenceNumber || got.PartitionKey != r.PartitionKey || !bytes.Equal(got.Data, r.Data) {
				t.Fatalf("%x: record %d is %+v, want %+v", body, i, got, r)
			}
		}
	})
}

// Whatever is cut off or mangled is an error that names its place, not a panic and
// not a shorter page.
func TestCutAnswers(t *testing.T) {
	whole := `{"Records":[{"SequenceNumber":"1","PartitionKey":"k","Data":"e30=","ApproximateArrivalTimestamp":1.5}],"MillisBehindLatest":5}`
	for n := range len(whole) {
		err := (&Page{buffer: []byte(whole[:n])}).decodeJSON()
		var decode *DecodeError
		if !errors.As(err, &decode) {
			t.Errorf("JSON cut at %d: %v", n, err)
		}
	}
	b, err := cbor.Marshal(map[string]any{"Records": []any{map[string]any{"Data": []byte("{}"), "PartitionKey": "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(b) {
		err := (&Page{buffer: bytes.Clone(b[:n])}).decodeCBOR()
		var decode *DecodeError
		if !errors.As(err, &decode) {
			t.Errorf("CBOR cut at %d: %v", n, err)
		}
	}
}

func answer(records, size int, asCBOR bool) []byte {
	data := bytes.Repeat([]byte("x"), size)
	var b bytes.Buffer
	var list []any
	b.WriteString(`{"MillisBehindLatest":0,"NextShardIterator":"AAAA","Records":[`)
	for i := range records {
		seq := fmt.Sprintf("4959033827149025660855969253836157109592157598913%07d", i)
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"ApproximateArrivalTimestamp":1.764547200123E9,"Data":%q,"PartitionKey":"key-%d","SequenceNumber":%q}`, base64.StdEncoding.EncodeToString(data), i, seq)
		list = append(list, map[string]any{"ApproximateArrivalTimestamp": cbor.Tag{Number: 1, Content: uint64(1764547200123)}, "Data": data, "PartitionKey": fmt.Sprint("key-", i), "SequenceNumber": seq})
	}
	b.WriteString(`]}`)
	if !asCBOR {
		return b.Bytes()
	}
	out, err := cbor.Marshal(map[string]any{"Records": list, "MillisBehindLatest": 0, "NextShardIterator": "AAAA"})
	if err != nil {
		panic(err)
	}
	return out
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{256, 1024} {
		for _, asCBOR := range []bool{false, true} {
			b.Run(fmt.Sprintf("size=%d/cbor=%v", size, asCBOR), func(b *testing.B) {
				const records = 5000
				body := answer(records, size, asCBOR)
				buffer := make([]byte, len(body))
				page := &Page{Records: make([]kinetl.Record, 0, records)}
				b.ReportAllocs()
				for b.Loop() {
					copy(buffer, body) // JSON is decoded in place
					page.buffer, page.Records, page.Bytes = buffer, page.Records[:0], 0
					var err error
					if asCBOR {
						err = page.decodeCBOR()
					} else {
						err = page.decodeJSON()
					}
					if err != nil || len(page.Records) != records {
						b.Fatal(len(page.Records), err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
			})
		}
	}
}

// FuzzBase64: decoding in place is decoding.
func FuzzBase64(f *testing.F) {
	for _, s := range []string{"", "e30=", "AAECAwQF", "AA==", "AAE=\n", "A", "====", strings.Repeat("abcd", 40), "ab\ncdefgh"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := base64.StdEncoding.DecodeString(s)
		text := []byte(s)
		n, ok := decodeBase64(text)
		if ok != (err == nil) {
			t.Fatalf("%q: %v, want %v", s, ok, err)
		}
		if ok && !bytes.Equal(text[:n], want) {
			t.Fatalf("%q: %q, want %q", s, text[:n], want)
		}
	})
}

// A page that is used again holds nothing of its former life.
func TestReleasedPagesAreClean(t *testing.T) {
	p := newPage()
	p.buffer = answer(3, 10, true)
	if err := p.decodeCBOR(); err != nil || len(p.Records) != 3 {
		t.Fatal(err)
	}
	p.Release()
	if len(p.Records) != 0 || p.Next != "" || p.Bytes != 0 || p.Records[:3][0].Data != nil {
		t.Errorf("after release: %+v", p)
	}
}
