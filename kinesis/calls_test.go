package kinesis

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Streams of other accounts are known by their ARNs alone: every call that reads names
// it, GetRecords too, whose iterator would name the stream as well. A page of ListShards
// but the first names the token that the ARN is in.
func TestCallsNameTheStreamByItsARN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{})
		seen := map[string]int{}
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			body := must(io.ReadAll(r.Body))
			r.Body = io.NopCloser(bytes.NewReader(body))
			_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
			if seen[op]++; !bytes.Contains(body, []byte(srv.StreamARN("s"))) && op != "DescribeStreamSummary" {
				t.Errorf("%s without the stream's ARN: %q", op, body)
			}
			return srv.Transport().RoundTrip(r)
		})
		check(t, srv.CreateStream("s", 1))
		for _, wire := range []Wire{WireCBOR, WireJSON} {
			s := NewSource(Options{Client: client(transport), Streams: []string{"s"}, Wire: wire})
			for _, info := range shards(t, s) {
				r := must(s.Read(t.Context(), info.ID, kinetl.Resume{After: kinetl.Oldest}))
				for range 3 {
					must(r.Next(t.Context())).Release()
				}
				check(t, r.Close())
			}
		}
		for _, op := range []string{"ListShards", "GetShardIterator", "GetRecords"} {
			if seen[op] == 0 {
				t.Errorf("%s was not called", op)
			}
		}
	})
}
