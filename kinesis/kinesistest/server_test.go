package kinesistest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
)

// clock is a clock that tests turn.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// dial makes an SDK client that does not retry.
func dial(endpoint string, transport http.RoundTripper) *kinesis.Client {
	return kinesis.New(kinesis.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		Retryer:      aws.NopRetryer{},
		HTTPClient:   &http.Client{Transport: transport},
	})
}

// caller calls a server on behalf of a test.
type caller struct {
	*testing.T
	api *kinesis.Client
	ctx context.Context
}

// world is a server without a socket, its clock and a client.
type world struct {
	caller
	srv   *Server
	clock *clock
}

func newWorld(t *testing.T, opts Options) *world {
	c := newClock()
	opts.Now = c.Now
	srv := New(opts)
	return &world{caller{t, dial(srv.URL(), srv.Transport()), t.Context()}, srv, c}
}

func (w *caller) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// refused checks that an error has the code.
func refused(t testing.TB, err error, code string) {
	t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != code {
		t.Errorf("got error %v, want %s", err, code)
	}
}

func (w *caller) iterator(stream, shard string, kind types.ShardIteratorType, seq string, at time.Time) string {
	w.Helper()
	out, err := w.api.GetShardIterator(w.ctx, iteratorInput(stream, shard, kind, seq, at))
	w.must(err)
	return *out.ShardIterator
}

func iteratorInput(stream, shard string, kind types.ShardIteratorType, seq string, at time.Time) *kinesis.GetShardIteratorInput {
	in := &kinesis.GetShardIteratorInput{StreamName: &stream, ShardId: &shard, ShardIteratorType: kind}
	if seq != "" {
		in.StartingSequenceNumber = &seq
	}
	if !at.IsZero() {
		in.Timestamp = &at
	}
	return in
}

func (w *caller) horizon(stream, shard string) string {
	w.Helper()
	return w.iterator(stream, shard, types.ShardIteratorTypeTrimHorizon, "", time.Time{})
}

func (w *caller) get(iterator string, limit int32) *kinesis.GetRecordsOutput {
	w.Helper()
	in := &kinesis.GetRecordsInput{ShardIterator: &iterator}
	if limit > 0 {
		in.Limit = &limit
	}
	out, err := w.api.GetRecords(w.ctx, in)
	w.must(err)
	return out
}

// put stores a record of each text under one key and returns the sequence numbers.
func (w *caller) put(stream string, texts ...string) (seqs []string) {
	w.Helper()
	for _, text := range texts {
		out, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &stream, PartitionKey: aws.String("k"), Data: []byte(text)})
		w.must(err)
		seqs = append(seqs, *out.SequenceNumber)
	}
	return seqs
}

func (w *caller) shards(stream string) []types.Shard {
	w.Helper()
	out, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: &stream})
	w.must(err)
	return out.Shards
}

// texts joins what the records of a page hold.
func texts(page *kinesis.GetRecordsOutput) string {
	var all []string
	for _, r := range page.Records {
		all = append(all, string(r.Data))
	}
	return strings.Join(all, " ")
}

// ids joins the ids of shards, without their zeros.
func ids(shards []types.Shard) string {
	var all []string
	for _, s := range shards {
		all = append(all, strings.TrimLeft(strings.TrimPrefix(*s.ShardId, "shardId-"), "0"))
		if all[len(all)-1] == "" {
			all[len(all)-1] = "0"
		}
	}
	return strings.Join(all, " ")
}

func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

const shard0 = "shardId-000000000000"

// What is put is what is read, over a socket and over TLS.
func TestSocket(t *testing.T) {
	for _, secure := range []bool{false, true} {
		srv, err := Start(Options{TLS: secure})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		transport := http.DefaultTransport.(*http.Transport).Clone()
		defer transport.CloseIdleConnections()
		if secure {
			transport.TLSClientConfig.RootCAs = srv.CertPool()
		}
		w := caller{t, dial(srv.URL(), transport), t.Context()}
		w.must(srv.CreateStream("orders", 1))
		put, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: aws.String("orders"), PartitionKey: aws.String("k\u00e9\"\n"), Data: []byte("hello")})
		w.must(err)
		page := w.get(w.horizon("orders", shard0), 0)
		if len(page.Records) != 1 {
			t.Fatalf("read %d records, put 1", len(page.Records))
		}
		r := page.Records[0]
		if string(r.Data) != "hello" || *r.PartitionKey != "k\u00e9\"\n" || *r.SequenceNumber != *put.SequenceNumber {
			t.Fatalf("read %+v, put %+v", r, put)
		}
		if age := time.Since(*r.ApproximateArrivalTimestamp); age < -time.Second || age > time.Minute {
			t.Errorf("arrival is %v ago", age)
		}
		resp, err := (&http.Client{Transport: transport}).Get(srv.URL() + "/healthcheck")
		w.must(err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("health check answers %s", resp.Status)
		}
	}
}
