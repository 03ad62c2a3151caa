package kinesistest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// post sends a body as it is.
func post(t testing.TB, srv *Server, op, contentType string, body []byte) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", targetPrefix+op)
	r.Header.Set("Content-Type", contentType)
	resp, err := srv.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// call posts a document in CBOR and reads the answer into a map.
func call(t testing.TB, srv *Server, op string, in any) (status int, out map[string]any) {
	t.Helper()
	body, err := cbor.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	resp := post(t, srv, op, typeCBOR, body)
	same(t, "Content-Type", resp.Header.Get("Content-Type"), typeCBOR)
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "Content-Length", resp.Header.Get("Content-Length"), fmt.Sprint(len(answer)))
	if len(answer) > 0 {
		if err := cbor.Unmarshal(answer, &out); err != nil {
			t.Fatalf("%s: answer is no CBOR map: %v", op, err)
		}
	}
	return resp.StatusCode, out
}

// The whole path in CBOR: blobs are byte strings, instants tag 1 around whole
// milliseconds, errors a map.
func TestCBOR(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	status, _ := call(t, w.srv, "CreateStream", map[string]any{"StreamName": "s", "ShardCount": 1})
	same(t, "CreateStream", status, 200)
	w.clock.add(1234 * time.Millisecond)
	arrived := w.clock.Now().UnixMilli()
	sizes := []int{0, 1, 23, 24, 255, 256, 65535, 65536}
	var entries []any
	for i, n := range sizes {
		entries = append(entries, map[string]any{"Data": bytes.Repeat([]byte{byte(i)}, n), "PartitionKey": strings.Repeat("k", 1+n%256)})
	}
	_, out := call(t, w.srv, "PutRecords", map[string]any{"StreamName": "s", "Records": entries})
	same(t, "failed", fmt.Sprint(out["FailedRecordCount"]), "0")
	w.clock.add(time.Second)

	_, out = call(t, w.srv, "GetShardIterator", map[string]any{
		"StreamName": "s", "ShardId": shard0, "ShardIteratorType": "AT_TIMESTAMP",
		"Timestamp": cbor.Tag{Number: 1, Content: arrived},
	})
	it := out["ShardIterator"].(string)
	_, later := call(t, w.srv, "GetShardIterator", map[string]any{
		"StreamName": "s", "ShardId": shard0, "ShardIteratorType": "AT_TIMESTAMP",
		"Timestamp": cbor.Tag{Number: 1, Content: float64(arrived + 1)},
	})
	body, _ := cbor.Marshal(map[string]any{"ShardIterator": it, "Limit": 7})
	raw, err := io.ReadAll(post(t, w.srv, "GetRecords", typeCBOR, body).Body)
	w.must(err)
	var page struct {
		Records []struct {
			SequenceNumber              string
			ApproximateArrivalTimestamp cbor.RawTag
			Data                        []byte
			PartitionKey                string
		}
		MillisBehindLatest int64
		NextShardIterator  string
		ChildShards        []childShard
	}
	w.must(cbor.Unmarshal(raw, &page))
	same(t, "records", len(page.Records), 7)
	same(t, "lag", page.MillisBehindLatest, 1000)
	last := ""
	for i, r := range page.Records {
		n := sizes[i]
		if !bytes.Equal(r.Data, bytes.Repeat([]byte{byte(i)}, n)) || r.PartitionKey != strings.Repeat("k", 1+n%256) {
			t.Errorf("record %d of %d bytes is not what was put", i, n)
		}
		var ms int64
		w.must(cbor.Unmarshal(r.ApproximateArrivalTimestamp.Content, &ms))
		same(t, "tag", r.ApproximateArrivalTimestamp.Number, 1)
		same(t, "arrival", ms, arrived)
		if r.SequenceNumber <= last {
			t.Errorf("%s comes after %s", r.SequenceNumber, last)
		}
		last = r.SequenceNumber
	}
	_, err = w.srv.Split("s", shard0)
	w.must(err)
	body, _ = cbor.Marshal(map[string]any{"ShardIterator": page.NextShardIterator})
	raw, err = io.ReadAll(post(t, w.srv, "GetRecords", typeCBOR, body).Body)
	w.must(err)
	page.NextShardIterator = ""
	w.must(cbor.Unmarshal(raw, &page))
	same(t, "records", len(page.Records), 1)
	same(t, "iterator", page.NextShardIterator, "")
	same(t, "children", fmt.Sprint(page.ChildShards[0].ShardId, " ", page.ChildShards[1].ParentShards), shard1+" ["+shard0+"]")
	_, out = call(t, w.srv, "GetRecords", map[string]any{"ShardIterator": later["ShardIterator"]})
	same(t, "records a millisecond later", len(out["Records"].([]any)), 0)

	status, out = call(t, w.srv, "DescribeStreamSummary", map[string]any{"StreamName": "none"})
	same(t, "status", status, 400)
	same(t, "__type", fmt.Sprint(out["__type"]), "ResourceNotFoundException")
	if out["message"] == "" {
		t.Error("the error has no message")
	}
}

// The same page in JSON and in CBOR says the same.
func TestJSONAndCBORAgree(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 1))
	for i := range 300 {
		_, _, err := w.srv.Put("s", fmt.Sprint("\"k\u00e9\x01", i), bytes.Repeat([]byte{byte(i)}, i*7))
		w.must(err)
		w.clock.add(7 * time.Millisecond)
	}
	it := w.horizon("s", shard0)
	fromJSON := w.get(it, 0)
	body, _ := cbor.Marshal(map[string]any{"ShardIterator": it})
	raw, err := io.ReadAll(post(t, w.srv, "GetRecords", typeCBOR, body).Body)
	w.must(err)
	var page struct {
		Records []struct {
			SequenceNumber, PartitionKey string
			ApproximateArrivalTimestamp  instant
			Data                         []byte
		}
	}
	w.must(cbor.Unmarshal(raw, &page))
	same(t, "records", len(page.Records), len(fromJSON.Records))
	same(t, "records", len(page.Records), 300)
	for i, r := range page.Records {
		j := fromJSON.Records[i]
		if r.SequenceNumber != *j.SequenceNumber || r.PartitionKey != *j.PartitionKey || !bytes.Equal(r.Data, j.Data) || !time.Time(r.ApproximateArrivalTimestamp).Equal(*j.ApproximateArrivalTimestamp) {
			t.Fatalf("record %d: CBOR %+v, JSON %+v", i, r, j)
		}
	}
}

// What is not a known action in a known format is refused as the service does.
func TestUnknownRequests(t *testing.T) {
	srv := New(Options{})
	for _, c := range []struct{ op, kind, body, code string }{
		{"FlyToTheMoon", typeJSON, "{}", "UnknownOperationException"},
		{"ListStreams", "text/plain", "{}", "UnknownOperationException"},
		{"ListStreams", typeJSON, "{", "SerializationException"},
		{"ListStreams", typeJSON, `{"Limit":"x"}`, "SerializationException"},
		{"ListStreams", typeCBOR, "\xbf", "SerializationException"},
		{"ListStreams", typeJSON, `{"Limit":0}`, "ValidationException"},
		{"ListShards", typeJSON, "{}", "InvalidArgumentException"},
		{"ListShards", typeJSON, `{"StreamName":"a","StreamARN":"arn:aws:kinesis:us-east-1:000000000000:stream/b"}`, "InvalidArgumentException"},
		{"ListShards", typeJSON, `{"StreamARN":"arn:aws:kinesis:us-east-1:111111111111:stream/b"}`, "ResourceNotFoundException"},
		{"ListShards", typeJSON, `{"StreamARN":"b"}`, "ValidationException"},
		{"GetRecords", typeJSON, "{}", "ValidationException"},
		{"PutRecords", typeJSON, `{"StreamName":"a","Records":[]}`, "ValidationException"},
	} {
		resp := post(t, srv, c.op, c.kind, []byte(c.body))
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 400 || !strings.Contains(string(body), c.code) {
			t.Errorf("%s %q as %s: %d %q, want %s", c.op, c.body, c.kind, resp.StatusCode, body, c.code)
		}
	}
}

// No body brings the server down or is answered with InternalFailure.
func FuzzRequest(f *testing.F) {
	srv := New(Options{})
	if err := srv.CreateStream("s", 2); err != nil {
		f.Fatal(err)
	}
	seeds := []struct{ op, body string }{
		{"ListShards", `{"StreamName":"s","ShardFilter":{"Type":"AT_TIMESTAMP","Timestamp":1.5}}`},
		{"GetShardIterator", `{"StreamName":"s","ShardId":"shardId-000000000000","ShardIteratorType":"AT_SEQUENCE_NUMBER","StartingSequenceNumber":"1"}`},
		{"PutRecord", `{"StreamName":"s","PartitionKey":"k","Data":"aGk=","ExplicitHashKey":"0"}`},
		{"SplitShard", `{"StreamName":"s","ShardToSplit":"shardId-000000000000","NewStartingHashKey":"7"}`},
		{"UpdateShardCount", `{"StreamName":"s","TargetShardCount":3,"ScalingType":"UNIFORM_SCALING"}`},
	}
	for _, s := range seeds {
		f.Add(s.op, false, []byte(s.body))
	}
	at, _ := cbor.Marshal(map[string]any{"StreamName": "s", "ShardFilter": map[string]any{"Type": "AT_TIMESTAMP", "Timestamp": cbor.Tag{Number: 1, Content: 1e300}}})
	f.Add("ListShards", true, at)
	f.Fuzz(func(t *testing.T, op string, binary bool, body []byte) {
		kind := typeJSON
		if binary {
			kind = typeCBOR
		}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL(), bytes.NewReader(body))
		r.Header["X-Amz-Target"] = []string{targetPrefix + op}
		r.Header.Set("Content-Type", kind)
		resp, err := srv.Transport().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode >= 500 {
			answer, _ := io.ReadAll(resp.Body)
			t.Fatalf("%s %q: %d %s", op, body, resp.StatusCode, answer)
		}
	})
}
