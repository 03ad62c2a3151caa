package kinesis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// client connects to a test server in memory, so that tests may run in virtual time.
func client(transport http.RoundTripper) *kinesis.Client {
	return kinesis.New(kinesis.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://kinesis.test"),
		HTTPClient:  &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
}

// in runs a test in a bubble of virtual time, with a server and a source of it.
func in(t *testing.T, opts kinesistest.Options, test func(t *testing.T, srv *kinesistest.Server, s *Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(opts)
		test(t, srv, NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}}))
	})
}

// inBoth runs a test for each way of reading.
func inBoth(t *testing.T, opts kinesistest.Options, test func(t *testing.T, srv *kinesistest.Server, s *Source)) {
	t.Helper()
	for _, c := range []Consumer{Shared, FanOut} {
		t.Run(string(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := kinesistest.New(opts)
				test(t, srv, NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: c, ConsumerName: "app"}))
			})
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shards lists the stream's shards by id.
func shards(t *testing.T, s *Source) map[string]kinetl.ShardInfo {
	t.Helper()
	out := map[string]kinetl.ShardInfo{}
	for _, info := range must(s.Shards(t.Context(), time.Time{})).Shards {
		out[info.ID.Shard] = info
	}
	return out
}

func open(t *testing.T, s *Source, shard string, from kinetl.Resume) kinetl.Reader {
	t.Helper()
	r := must(s.Read(t.Context(), shards(t, s)[shard].ID, from))
	t.Cleanup(func() { r.Close() })
	return r
}

// next waits for the reader's turn and fetches.
func next(ctx context.Context, r kinetl.Reader) (kinetl.Fetch, error) {
	if _, err := r.Ready(ctx); err != nil {
		return kinetl.Fetch{}, err
	}
	return r.Next(ctx)
}

// drain reads to the tip or the end, and returns the payloads.
func drain(t *testing.T, r kinetl.Reader) (out []string, ended bool) {
	t.Helper()
	for {
		f, err := next(t.Context(), r)
		if err == io.EOF {
			return out, true
		}
		check(t, err)
		for _, rec := range f.Records {
			out = append(out, string(rec.Data))
		}
		if !f.CaughtUp.IsZero() && len(f.Records) == 0 {
			return out, false
		}
	}
}

const shard0, shard1, shard2, shard3 = "shardId-000000000000", "shardId-000000000001", "shardId-000000000002", "shardId-000000000003"

var oldest = kinetl.Resume{After: kinetl.Oldest}

// K1, K19: a closed shard that nobody has read is read, its last page included, and
// ends; so do its children in turn.
func TestClosedShardsAreReadToTheirEnd(t *testing.T) {
	inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		put := func(from, to int) {
			for i := from; i < to; i++ {
				must2(srv.Put("s", fmt.Sprint("key", i), []byte(fmt.Sprint(i))))
			}
		}
		put(0, 700)
		must(srv.Split("s", shard0))
		put(700, 1000)
		must(srv.Merge("s", shard1, shard2))
		put(1000, 1100)

		list := shards(t, s)
		if p := list[shard3].Parents; len(list) != 4 || !slices.Equal(p, []string{shard1, shard2}) || !list[shard0].Closed || list[shard3].Closed {
			t.Fatalf("listed %+v", list)
		}
		var all []string
		for shard, wantEnd := range map[string]bool{shard0: true, shard1: true, shard2: true, shard3: false} {
			got, ended := drain(t, open(t, s, shard, oldest))
			if ended != wantEnd {
				t.Errorf("%s: ended %v, want %v", shard, ended, wantEnd)
			}
			all = append(all, got...)
		}
		slices.Sort(all)
		if len(slices.Compact(all)) != 1100 {
			t.Errorf("read %d of 1100 records", len(slices.Compact(all)))
		}
	})
}

// R2, K9, K10: records of an aggregate carry their index; reading resumes inside it.
func TestResumeInsideAnAggregate(t *testing.T) {
	inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("before")))
		must2(srv.Put("s", "k", Aggregate([]AggregateRecord{{"a", []byte("0")}, {"b", []byte("1")}, {"a", []byte("2")}})))
		must2(srv.Put("s", "k", []byte("after")))
		f := must(next(t.Context(), open(t, s, shard0, oldest)))
		if len(f.Records) != 5 || f.Records[2].PartitionKey != "b" || f.Records[3].Sub != 2 || f.Records[1].Sequence != f.Records[3].Sequence {
			t.Fatalf("read %+v", f.Records)
		}
		for i, r := range f.Records {
			got, _ := drain(t, open(t, s, shard0, kinetl.Resume{After: r.Position()}))
			want := []string{"before", "0", "1", "2", "after"}[i+1:]
			if !slices.Equal(got, want) {
				t.Errorf("after %s: read %q, want %q", r.Position(), got, want)
			}
		}
	})
}

// K15, KCL complaint 23: an iterator that expired during a stall is re-opened after the
// last record that was returned, wherever reading started; where none was, at the start.
func TestExpiredIterator(t *testing.T) {
	for name, start := range map[string]func(before, first kinetl.Record) kinetl.Position{
		"oldest":           func(before, first kinetl.Record) kinetl.Position { return kinetl.Oldest },
		"an instant":       func(before, first kinetl.Record) kinetl.Position { return kinetl.Since(first.Arrived) },
		"after a record":   func(before, first kinetl.Record) kinetl.Position { return before.Position() },
		"nothing to read":  func(before, first kinetl.Record) kinetl.Position { return first.Position() },
		"a coming instant": func(before, first kinetl.Record) kinetl.Position { return kinetl.Since(first.Arrived.Add(time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
				check(t, srv.CreateStream("s", 1))
				must2(srv.Put("s", "k", []byte("0")))
				time.Sleep(time.Minute)
				must2(srv.Put("s", "k", []byte("1")))
				all := must(next(t.Context(), open(t, s, shard0, oldest))).Records
				time.Sleep(5 * time.Second)
				r := open(t, s, shard0, kinetl.Resume{After: start(all[0], all[1]), CaughtUp: time.Now()})
				before, _ := drain(t, r)
				want := map[string][]string{"oldest": {"0", "1"}, "an instant": {"1"}, "after a record": {"1"}}[name]
				if !slices.Equal(before, want) {
					t.Errorf("read %q, want %q", before, want)
				}
				for _, text := range []string{"2", "3"} {
					must2(srv.Put("s", "k", []byte(text)))
					time.Sleep(6 * time.Minute)
					if got, _ := drain(t, r); !slices.Equal(got, []string{text}) {
						t.Errorf("after the stall read %q, want %s", got, text)
					}
				}
			})
		})
	}
}

// R5: a missing iterator is not the end while the shard is listed as open.
func TestMissingIteratorIsNotTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{})
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("1")))
		cut := 2 // answers that lose their iterator
		transport := edit{srv.Transport(), func(op string, body map[string]any) {
			if op == "GetRecords" && cut > 0 {
				cut--
				delete(body, "NextShardIterator")
			}
		}}
		s := NewSource(Options{Client: client(transport), Streams: []string{"s"}, Wire: WireJSON})
		r := open(t, s, shard0, oldest)
		first, _ := drain(t, r)
		must2(srv.Put("s", "k", []byte("2")))
		second, ended := drain(t, r)
		if !slices.Equal(first, []string{"1"}) || !slices.Equal(second, []string{"2"}) || ended || cut != 0 {
			t.Errorf("read %q, then %q, ended %v", first, second, ended)
		}
	})
}

// R5: nor is it the end when the shard is closed by the time that is looked at: a
// record may have come between the answer without iterator and the split.
func TestMissingIteratorBeforeASplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{})
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("1")))
		asked := 0
		transport := edit{srv.Transport(), func(op string, body map[string]any) {
			if op == "GetRecords" {
				if asked++; asked == 1 {
					delete(body, "NextShardIterator")
				}
				delete(body, "ChildShards")
			}
		}}
		s := NewSource(Options{Client: client(transport), Streams: []string{"s"}, Wire: WireJSON})
		r := open(t, s, shard0, oldest)
		first := must(next(t.Context(), r)).Records
		must2(srv.Put("s", "k", []byte("2")))
		must(srv.Split("s", shard0))
		if got, ended := drain(t, r); len(first) != 1 || !slices.Equal(got, []string{"2"}) || !ended {
			t.Errorf("read %d, then %q, ended %v", len(first), got, ended)
		}
	})
}

// edit changes answers on their way back.
type edit struct {
	http.RoundTripper
	change func(op string, body map[string]any)
}

func (e edit) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	var body map[string]any
	raw := must(io.ReadAll(resp.Body))
	if json.Unmarshal(raw, &body) == nil {
		_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
		e.change(op, body)
		raw = must(json.Marshal(body))
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	resp.Header.Del("Content-Length")
	resp.Header.Del("X-Amz-Crc32")
	return resp, nil
}

// An empty page is not the tip: the service may answer without records although
// more follow.
func TestEmptyPagesAreNotTheTip(t *testing.T) {
	in(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("1")))
		time.Sleep(time.Second)
		srv.Fault(kinesistest.Fault{Op: "GetRecords", Times: 3, Do: kinesistest.EmptyPage()})
		r := open(t, s, shard0, oldest)
		for range 3 {
			if f := must(next(t.Context(), r)); len(f.Records) != 0 || f.Lag == 0 || !f.CaughtUp.IsZero() {
				t.Fatalf("got %+v", f)
			}
		}
		if got, _ := drain(t, r); !slices.Equal(got, []string{"1"}) {
			t.Errorf("read %q", got)
		}
	})
}

// K40: lag is how far reading is behind, not how old the latest record is. On a shard
// with nothing new it is 0, for hours, and the shard counts as caught up.
func TestLagOfAnIdleShard(t *testing.T) {
	inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("1")))
		time.Sleep(10 * time.Minute)
		r := open(t, s, shard0, oldest)
		read, pages := 0, 0
		for began := time.Now(); time.Since(began) < 2*time.Hour; pages++ {
			f := must(next(t.Context(), r))
			if read += len(f.Records); read == 1 && (f.Lag != 0 || time.Since(f.CaughtUp) > 6*time.Minute) {
				t.Fatalf("page %d: lag %s, caught up at %s, now is %s", pages, f.Lag, f.CaughtUp, time.Now())
			}
		}
		if read != 1 || pages < 100 {
			t.Errorf("read %d records in %d pages", read, pages)
		}
	})
}

// K13: each call of the first reading is refused once, for good as it seems. The source
// and the reader are none the worse for it when they are asked again.
func TestFirstCallsThatFail(t *testing.T) {
	for _, op := range []string{"ListStreams", "DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords", "DescribeStreamConsumer", "RegisterStreamConsumer", "SubscribeToShard"} {
		t.Run(op, func(t *testing.T) {
			inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
				opts := s.opts
				opts.Streams = nil
				s = NewSource(opts)
				check(t, srv.CreateStream("s", 1))
				must2(srv.Put("s", "k", []byte("1")))
				srv.Fault(kinesistest.Fault{Op: op, Times: 1, Do: kinesistest.Fail(400, "AccessDeniedException", "not yet")})
				listing, err := s.Shards(t.Context(), time.Time{})
				failures := 0
				if err != nil {
					failures++
					listing = must(s.Shards(t.Context(), time.Time{}))
				}
				r := must(s.Read(t.Context(), listing.Shards[0].ID, oldest))
				defer r.Close()
				f, err := next(t.Context(), r)
				for err != nil && failures < 5 {
					failures++
					time.Sleep(time.Minute) // what was found about a consumer stands for a while
					f, err = next(t.Context(), r)
				}
				if err != nil || len(f.Records) != 1 {
					t.Errorf("read %d records, %v", len(f.Records), err)
				}
				if asked := srv.Count(op) > 0; asked != (failures == 1) {
					t.Errorf("%d failures, asked %v", failures, asked)
				}
			})
		})
	}
}

// R26: what left the stream unread is an incident, not a jump to the oldest record;
// what left it after the shard was caught up is nothing.
func TestExpiredPositions(t *testing.T) {
	inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("read")))
		began := time.Now()
		read := must(next(t.Context(), open(t, s, shard0, oldest))).Records[0].Position()
		time.Sleep(time.Hour)
		must2(srv.Put("s", "k", []byte("unread")))
		time.Sleep(23*time.Hour + 30*time.Minute) // the first is gone, the second is not
		for name, c := range map[string]struct {
			resume  kinetl.Resume
			expired bool
		}{
			"the record is gone, the shard was caught up since": {kinetl.Resume{After: read, CaughtUp: began.Add(time.Hour)}, false},
			"the record is gone, the shard was never caught up": {kinetl.Resume{After: read}, true},
			"caught up, but too long ago":                       {kinetl.Resume{After: read, CaughtUp: began}, true},
			"a start older than retention":                      {kinetl.Resume{After: kinetl.Since(began)}, true},
			"a start within retention":                          {kinetl.Resume{After: kinetl.Since(began.Add(time.Hour))}, false},
			"oldest, first listed long ago":                     {kinetl.Resume{After: kinetl.Oldest, Listed: began}, true},
			"oldest, first listed now":                          {kinetl.Resume{After: kinetl.Oldest, Listed: time.Now()}, false},
			"the record is gone, and that is accepted":          {kinetl.Resume{After: read, Accepted: true}, false},
			"a start older than retention, accepted":            {kinetl.Resume{After: kinetl.Since(began), Accepted: true}, false},
			"oldest, first listed long ago, accepted":           {kinetl.Resume{After: kinetl.Oldest, Listed: began, Accepted: true}, false},
		} {
			f, err := next(t.Context(), open(t, s, shard0, c.resume))
			if err == nil && (len(f.Records) != 1 || string(f.Records[0].Data) != "unread") {
				t.Errorf("%s: read %v", name, f.Records)
			}
			var expired *kinetl.ExpiredError
			if got := errors.As(err, &expired); got != c.expired || err != nil && !got {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// R24, R26: a position that the service does not know for this shard is expired too;
// accepted, reading begins at the oldest record, and goes on as ever when an iterator
// expires later.
func TestAcceptedPositionThatTheServiceRefuses(t *testing.T) {
	inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("one")))
		strange := kinetl.At("1", 0)
		var expired *kinetl.ExpiredError
		if _, err := next(t.Context(), open(t, s, shard0, kinetl.Resume{After: strange})); !errors.As(err, &expired) {
			t.Fatalf("not accepted: %v", err)
		}
		r := open(t, s, shard0, kinetl.Resume{After: strange, Accepted: true})
		if f := must(next(t.Context(), r)); len(f.Records) != 1 || string(f.Records[0].Data) != "one" {
			t.Fatalf("read %v", f.Records)
		}
		must2(srv.Put("s", "k", []byte("two")))
		time.Sleep(6 * time.Minute)
		if f := must(next(t.Context(), r)); len(f.Records) != 1 || string(f.Records[0].Data) != "two" {
			t.Fatalf("then read %v", f.Records)
		}
	})
}

// Throttling and server errors slow down the shard that meets them, and no other.
func TestBackOffLeavesOtherShardsAlone(t *testing.T) {
	in(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 2))
		for _, shard := range []string{shard0, shard1} {
			must(srv.PutShard("s", shard, "k", []byte(shard)))
		}
		srv.Fault(kinesistest.Fault{Op: "GetRecords", Shard: shard0, Times: 8, Do: kinesistest.Throttle()})
		srv.Fault(kinesistest.Fault{Op: "GetRecords", Shard: shard0, After: 8, Times: 4, Do: kinesistest.Fail(500, "InternalFailure", "try again")})
		slow, fast := open(t, s, shard0, oldest), open(t, s, shard1, oldest)
		began := time.Now()
		must(next(t.Context(), fast))
		if took := time.Since(began); took > time.Second {
			t.Errorf("the healthy shard waited %s", took)
		}
		got, _ := drain(t, slow)
		if took := time.Since(began); !slices.Equal(got, []string{shard0}) || took < 10*time.Second || took > 3*time.Minute {
			t.Errorf("the throttled shard read %q after %s", got, took)
		}
	})
}

// A shard whose calls fail again and again says so, instead of repeating them in
// silence for ever.
func TestLastingFailureIsReported(t *testing.T) {
	in(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		srv.Fault(kinesistest.Fault{Op: "GetRecords", Do: kinesistest.Fail(500, "InternalFailure", "try again")})
		r := open(t, s, shard0, oldest)
		began := time.Now()
		_, err := next(t.Context(), r)
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), shard0) || took < time.Minute || took > 3*time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// An endpoint that does not speak CBOR, or speaks it badly, is read in JSON, which
// is said once; one that merely throttles is not taken for one.
func TestWireFallsBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{})
		check(t, srv.CreateStream("s", 2))
		for _, shard := range []string{shard0, shard1} {
			must(srv.PutShard("s", shard, "k", []byte(shard)))
		}
		srv.Fault(kinesistest.Fault{Op: "GetRecords", Times: 1, Do: kinesistest.Throttle()})
		asked := map[string]int{}
		var log bytes.Buffer
		s := NewSource(Options{
			Client: client(noCBOR{srv.Transport(), asked}), Streams: []string{"s"},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		for _, shard := range []string{shard0, shard1} {
			if got, _ := drain(t, open(t, s, shard, oldest)); !slices.Equal(got, []string{shard}) {
				t.Errorf("read %q", got)
			}
		}
		if asked["application/x-amz-cbor-1.1"] != 2 || strings.Count(log.String(), "does not speak CBOR") != 1 {
			t.Errorf("asked %v; log: %s", asked, &log)
		}
	})
}

// noCBOR is an endpoint that has never heard of CBOR.
type noCBOR struct {
	http.RoundTripper
	asked map[string]int
}

func (n noCBOR) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.Header.Get("X-Amz-Target"), ".GetRecords") {
		return n.RoundTripper.RoundTrip(req)
	}
	kind := req.Header.Get("Content-Type")
	n.asked[kind]++
	resp, err := n.RoundTripper.RoundTrip(req)
	if err == nil && strings.Contains(kind, "cbor") && resp.StatusCode == 200 {
		resp.StatusCode, resp.Body = 400, io.NopCloser(strings.NewReader(`{"__type":"SerializationException"}`))
		resp.Header.Set("Content-Type", "application/x-amz-json-1.1")
	}
	return resp, err
}

// K36: a stop ends the wait of a shard that backs off.
func TestStopDuringBackOff(t *testing.T) {
	in(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		srv.Fault(kinesistest.Fault{Op: "GetRecords", Do: kinesistest.Throttle()})
		r := open(t, s, shard0, oldest)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		_, err := next(ctx, r)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 30*time.Second {
			t.Errorf("after %s, not 30 s: %v", took, err)
		}
	})
}

// K38: no shard is asked more often than its share of 5 calls a second allows, which is
// half of them unless somebody says so, and an idle one ever more rarely, every two
// seconds in the end.
func TestPace(t *testing.T) {
	for share, most := range map[float64]int{0: 150, 0.1: 30, 1: 300} {
		t.Run(fmt.Sprint("share=", share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := kinesistest.New(kinesistest.Options{})
				s := NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, ReadShare: share})
				check(t, srv.CreateStream("s", 1))
				r := open(t, s, shard0, oldest)
				began := time.Now()
				for time.Since(began) < time.Minute {
					must2(srv.Put("s", "k", []byte("x")))
					must(next(t.Context(), r))
				}
				if busy := srv.Count("GetRecords"); busy < most*4/5 || busy > most+5 {
					t.Errorf("%d calls in a minute on a busy shard, at most %d are this reader's", busy, most)
				}
				before := srv.Count("GetRecords")
				for began = time.Now(); time.Since(began) < time.Minute; {
					must(next(t.Context(), r))
				}
				if idle := srv.Count("GetRecords") - before; idle < 25 || idle > 45 {
					t.Errorf("%d calls in a minute on an idle shard", idle)
				}
			})
		})
	}
}

// A record of 10 MiB is read; what was reserved for the page is only a guess.
func TestLargestRecord(t *testing.T) {
	inBoth(t, kinesistest.Options{NoLimits: true}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		_, err := s.opts.Client.UpdateMaxRecordSize(t.Context(), &kinesis.UpdateMaxRecordSizeInput{
			StreamARN: aws.String(srv.StreamARN("s")), MaxRecordSizeInKiB: aws.Int32(10 << 10),
		})
		check(t, err)
		big := bytes.Repeat([]byte("x"), 10<<20-1)
		must2(srv.Put("s", "k", big))
		must2(srv.Put("s", "k", []byte("small")))
		got, _ := drain(t, open(t, s, shard0, oldest))
		if len(got) != 2 || len(got[0]) != len(big) || got[1] != "small" {
			t.Errorf("read %d records", len(got))
		}
	})
}

// R1, K17: a stream that was deleted and created anew under its name is another one.
func TestRecreatedStream(t *testing.T) {
	inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("old")))
		before := shards(t, s)[shard0].ID
		r := open(t, s, shard0, oldest)
		must(next(t.Context(), r))
		check(t, srv.DeleteStream("s"))
		time.Sleep(2 * time.Minute)
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("new")))
		after := shards(t, s)[shard0].ID
		if before == after || before.Stream != after.Stream || before.Shard != after.Shard {
			t.Errorf("ids %v and %v", before, after)
		}
		var gone *kinetl.GoneError
		if _, err := next(t.Context(), r); !errors.As(err, &gone) {
			t.Errorf("the old reader: %v", err)
		}
		if _, err := s.Read(t.Context(), before, oldest); !errors.As(err, &gone) {
			t.Errorf("opening the old shard: %v", err)
		}
		if got, _ := drain(t, open(t, s, shard0, oldest)); !slices.Equal(got, []string{"new"}) {
			t.Errorf("read %q", got)
		}
	})
}

func must2(_, _ string, err error) {
	if err != nil {
		panic(err)
	}
}
