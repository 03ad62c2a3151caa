package kinesis

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// hanging is a network on which the answers of an action begin and do not go on, as when
// something between the two forgot the connection.
type hanging struct {
	http.RoundTripper
	mu sync.Mutex
	op string // "": none
}

func (h *hanging) hang(op string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.op = op
}

func (h *hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.RoundTripper.RoundTrip(req)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.op != "" && strings.HasSuffix(req.Header.Get("X-Amz-Target"), "."+h.op) {
		resp.Body, resp.ContentLength = endless{req.Context()}, -1
		resp.Header.Del("Content-Length")
	}
	return resp, err
}

// endless is a body of which nothing comes until its request is given up.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

func (endless) Close() error { return nil }

// K26, KCL complaint 8: an answer that never ends stops neither a shard nor the looking
// for new ones: the call is given up and made again.
func TestAnswersThatHang(t *testing.T) {
	for _, op := range []string{"GetShardIterator", "GetRecords", "ListShards", "DescribeStreamSummary", "ListStreams"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := kinesistest.New(kinesistest.Options{})
				check(t, srv.CreateStream("s", 1))
				must2(srv.Put("s", "k", []byte("1")))
				network := &hanging{RoundTripper: srv.Transport()}
				s := NewSource(Options{Client: client(network)})
				r := open(t, s, shard0, oldest)
				network.hang(op)
				time.AfterFunc(3*time.Minute, func() { network.hang("") })
				began := time.Now()
				if got, _ := drain(t, r); len(got) != 1 || got[0] != "1" {
					t.Errorf("read %q", got)
				}
				time.Sleep(time.Minute) // the streams are looked up again
				for began = time.Now(); ; {
					if listing, err := s.Shards(t.Context(), time.Time{}); err == nil && len(listing.Shards) == 1 {
						break
					}
				}
				if took := time.Since(began); took > 4*time.Minute {
					t.Errorf("listed after %s", took)
				}
			})
		})
	}
}
