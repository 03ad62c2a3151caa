package kinesis

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"go.uber.org/goleak"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/kinesis/kinesistest/npmserver"
)

// protocolOf counts the protocols in which a configuration's subscriptions are answered.
type protocolOf struct {
	aws.HTTPClient
	seen *sync.Map
}

func (p protocolOf) Do(r *http.Request) (*http.Response, error) {
	resp, err := p.HTTPClient.Do(r)
	if err == nil {
		p.seen.Store(resp.Proto, true)
	}
	return resp, err
}

// Over HTTP/2 and HTTP/1.1, while records come, subscriptions are renewed, cut in a
// frame and left half-open: no gap, no repeat, and nothing is left behind.
func TestFanOutOverSockets(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var all sync.WaitGroup
	for _, secure := range []bool{true, false} {
		srv, err := kinesistest.Start(kinesistest.Options{TLS: secure, NoLimits: true, SubscriptionLife: 1500 * time.Millisecond})
		check(t, err)
		defer srv.Close()
		if secure {
			bundle := filepath.Join(t.TempDir(), "ca.pem")
			check(t, os.WriteFile(bundle, srv.CertificatePEM(), 0o600))
			t.Setenv("AWS_CA_BUNDLE", bundle)
		}
		cfg, err := awsconf.Load(t.Context(), awsconf.Settings{Endpoint: srv.URL()})
		check(t, err)
		events, seen := awsconf.EventStreams(cfg, 64<<10), &sync.Map{}
		events.HTTPClient = protocolOf{events.HTTPClient, seen}
		all.Go(func() {
			readOverSocket(t, srv, NewSource(Options{
				Client: kinesis.NewFromConfig(cfg), Events: kinesis.NewFromConfig(events), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app",
			}))
			want := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[secure]
			seen.Range(func(proto, _ any) bool {
				if proto != want {
					t.Errorf("spoke %v, want %s", proto, want)
				}
				return true
			})
		})
	}
	all.Wait()
}

func readOverSocket(t *testing.T, srv *kinesistest.Server, s *Source) {
	check(t, srv.CreateStream("s", 1))
	srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", After: 1, Times: 1, Do: kinesistest.CutStream(3)})
	var written atomic.Int64
	var writer sync.WaitGroup
	writer.Go(func() {
		for began := time.Now(); time.Since(began) < 7*time.Second; time.Sleep(2 * time.Millisecond) {
			must2(srv.Put("s", "k", append(make([]byte, 20<<10), fmt.Sprint(written.Load())...)))
			written.Add(1)
		}
		must(srv.Split("s", shard0))
	})
	r := open(t, s, shard0, oldest)
	n := 0
	for {
		f, err := nextFetch(t, r)
		if err != nil {
			break // the end; anything else shows in the count
		}
		for _, rec := range f.Records {
			if got := string(rec.Data[20<<10:]); got != fmt.Sprint(n) {
				t.Errorf("read record %s, want %d", got, n)
				return
			}
			n++
		}
		f.Release()
	}
	writer.Wait()
	if int64(n) != written.Load() || n < 500 {
		t.Errorf("read %d of %d records", n, written.Load())
	}
	// One that waits for nothing is closed at once.
	idle := open(t, s, shard1, oldest)
	must(nextFetch(t, idle))
	check(t, idle.Close())
	for deadline := time.Now().Add(time.Second); must(srv.Subscriptions("s")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d subscriptions remain", must(srv.Subscriptions("s")))
			return
		}
	}
}

// npm's kinesis-local as a second opinion: a consumer is registered, records are read
// from where a reader begins, one that begins later goes on in the middle of an
// aggregate, and the consumer is deregistered.
func TestFanOutFromKinesisLocal(t *testing.T) {
	cfg, err := awsconf.Load(t.Context(), awsconf.Settings{Endpoint: npmserver.KinesisLocal(t)})
	check(t, err)
	c := kinesis.NewFromConfig(cfg)
	must(c.CreateStream(t.Context(), &kinesis.CreateStreamInput{StreamName: aws.String("s"), ShardCount: aws.Int32(1)}))
	check(t, kinesis.NewStreamExistsWaiter(c, func(o *kinesis.StreamExistsWaiterOptions) { o.MinDelay = 50 * time.Millisecond }).Wait(t.Context(), &kinesis.DescribeStreamInput{StreamName: aws.String("s")}, time.Minute))
	put := func(data string) {
		must(c.PutRecord(t.Context(), &kinesis.PutRecordInput{StreamName: aws.String("s"), PartitionKey: aws.String("k"), Data: []byte(data)}))
	}
	put("0")
	put(string(Aggregate([]AggregateRecord{{"a", []byte("1")}, {"b", []byte("2")}})))
	put("3")
	s := NewSource(Options{Client: c, Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app"})
	read := func(r kinetl.Reader, n int) (texts []string, second kinetl.Position) {
		for len(texts) < n {
			for _, rec := range must(nextFetch(t, r)).Records {
				if texts = append(texts, string(rec.Data)); len(texts) == 2 {
					second = rec.Position()
				}
			}
		}
		return texts, second
	}
	r := open(t, s, shard0, oldest)
	got, second := read(r, 4)
	put("4")
	live, _ := read(r, 1)
	if !slices.Equal(append(got, live...), []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("read %q, then %q", got, live)
	}
	check(t, r.Close())
	if again, _ := read(open(t, s, shard0, kinetl.Resume{After: second}), 3); !slices.Equal(again, []string{"2", "3", "4"}) {
		t.Errorf("resumed: read %q", again)
	}
	if q := must(s.FanOutQuotas(t.Context())); len(q) != 1 || !q[0].Registered || q[0].Consumers != 1 || q[0].Shards != 1 {
		t.Errorf("quotas %+v", q)
	}
	if removed := must(s.Deregister(t.Context())); len(removed) != 1 {
		t.Errorf("deregistered %q", removed)
	}
}
