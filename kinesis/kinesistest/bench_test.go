package kinesistest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// discard is an answer that nobody reads.
type discard struct {
	header http.Header
	bytes  int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(b []byte) (int, error) { d.bytes += len(b); return len(b), nil }

// BenchmarkGetRecords serves pages of 10,000 records of 256 bytes; its figure is
// records per second of one core, without and with a socket.
func BenchmarkGetRecords(b *testing.B) {
	srv, err := Start(Options{NoLimits: true})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	if err := srv.CreateStream("s", 1); err != nil {
		b.Fatal(err)
	}
	data := bytes.Repeat([]byte("kinetl.."), 32)
	for i := range 10000 {
		if _, _, err := srv.Put("s", fmt.Sprint("key-", i), data); err != nil {
			b.Fatal(err)
		}
	}
	_, out := call(b, srv, "GetShardIterator", map[string]any{"StreamName": "s", "ShardId": shard0, "ShardIteratorType": "TRIM_HORIZON"})
	in := map[string]any{"ShardIterator": out["ShardIterator"]}
	inCBOR, _ := cbor.Marshal(in)
	inJSON := fmt.Appendf(nil, `{"ShardIterator":"%s"}`, out["ShardIterator"])

	for _, format := range []struct {
		name, kind string
		body       []byte
	}{{"JSON", typeJSON, inJSON}, {"CBOR", typeCBOR, inCBOR}} {
		request := func() *http.Request {
			r, _ := http.NewRequest(http.MethodPost, srv.URL(), bytes.NewReader(format.body))
			r.Header.Set("X-Amz-Target", targetPrefix+"GetRecords")
			r.Header.Set("Content-Type", format.kind)
			return r
		}
		b.Run(format.name+"/handler", func(b *testing.B) {
			for b.Loop() {
				w := &discard{header: http.Header{}}
				srv.ServeHTTP(w, request())
				if w.bytes < 10000*256 {
					b.Fatal("a short answer")
				}
			}
			b.ReportMetric(10000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
		b.Run(format.name+"/socket", func(b *testing.B) {
			for b.Loop() {
				resp, err := http.DefaultClient.Do(request())
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			b.ReportMetric(10000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
