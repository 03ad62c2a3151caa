package kinesistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
)

// bubble runs a test in virtual time against a server with a stream s of one shard
// and a consumer of it.
func bubble(t *testing.T, opts Options, test func(w caller, srv *Server, arn string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := New(opts)
		w := caller{t, dial(srv.URL(), srv.Transport()), t.Context()}
		w.must(srv.CreateStream("s", 1))
		_, err := w.api.RegisterStreamConsumer(w.ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: aws.String(srv.StreamARN("s")), ConsumerName: aws.String("app")})
		w.must(err)
		time.Sleep(opts.StreamTransition)
		arns, err := srv.Consumers("s")
		w.must(err)
		test(w, srv, arns[0])
	})
}

// rest reads a subscription to its end and joins the texts of its records.
func rest(s *kinesis.SubscribeToShardEventStream) (texts string, events int, err error) {
	var all []string
	for ev := range s.Events() {
		events++
		for _, r := range ev.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value.Records {
			all = append(all, string(r.Data))
		}
	}
	return strings.Join(all, " "), events, s.Err()
}

// A subscription ends after five minutes, without an error and without children; idle,
// it has an event every few seconds.
func TestSubscriptionEnds(t *testing.T) {
	bubble(t, Options{}, func(w caller, srv *Server, arn string) {
		began := time.Now()
		_, events, err := rest(w.subscribe(arn, shard0, trimHorizon))
		w.must(err)
		same(w, "lasted", time.Since(began), 5*time.Minute)
		same(w, "events", events, 60)
		n, err := srv.Subscriptions("s")
		w.must(err)
		same(w, "open", n, 0)
	})
}

// A call within five seconds of one that succeeded is refused, whether or not that
// one still goes on; a later one takes over, and the other ends with ResourceInUse.
func TestSubscriptionIsTakenOver(t *testing.T) {
	bubble(t, Options{}, func(w caller, srv *Server, arn string) {
		again := func() error {
			_, err := w.api.SubscribeToShard(w.ctx, &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: aws.String(shard0), StartingPosition: &trimHorizon}, ownCodec)
			return err
		}
		first := w.subscribe(arn, shard0, trimHorizon)
		w.event(first)
		refused(w, again(), "LimitExceededException") // a second call within a second
		time.Sleep(time.Second)
		refused(w, again(), "ResourceInUseException")
		time.Sleep(4 * time.Second)
		second := w.subscribe(arn, shard0, trimHorizon)
		_, _, err := rest(first)
		refused(w, err, "ResourceInUseException")
		second.Close()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		refused(w, again(), "ResourceInUseException") // it ended, but began 2 s ago
	})
}

// A subscription ends when its consumer or its stream is deleted.
func TestSubscriptionToWhatIsDeleted(t *testing.T) {
	bubble(t, Options{StreamTransition: time.Second}, func(w caller, srv *Server, arn string) {
		s := w.subscribe(arn, shard0, trimHorizon)
		_, err := w.api.DeregisterStreamConsumer(w.ctx, &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn})
		w.must(err)
		_, _, err = rest(s)
		refused(w, err, "ResourceNotFoundException")
		_, err = w.api.DeregisterStreamConsumer(w.ctx, &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn})
		refused(w, err, "ResourceInUseException") // DELETING
		time.Sleep(time.Second)

		out, err := w.api.RegisterStreamConsumer(w.ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: aws.String(srv.StreamARN("s")), ConsumerName: aws.String("app")})
		w.must(err)
		arn = *out.Consumer.ConsumerARN
		_, err = w.api.SubscribeToShard(w.ctx, &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: aws.String(shard0), StartingPosition: &trimHorizon}, ownCodec)
		refused(w, err, "ResourceInUseException") // CREATING
		time.Sleep(time.Second)
		s = w.subscribe(arn, shard0, trimHorizon)
		_, err = w.api.DeleteStream(w.ctx, &kinesis.DeleteStreamInput{StreamName: aws.String("s"), EnforceConsumerDeletion: aws.Bool(true)})
		w.must(err)
		_, _, err = rest(s)
		refused(w, err, "ResourceNotFoundException")
	})
}

// A subscription's time is the server's own clock, when it has one.
func TestSubscriptionFollowsTheClock(t *testing.T) {
	w := newWorld(t, Options{SubscriptionLife: time.Hour})
	w.must(w.srv.CreateStream("s", 1))
	s := w.subscribe(w.consumer("s", "app"), shard0, trimHorizon)
	w.event(s)
	w.clock.add(10 * time.Second)
	w.event(s)
	w.clock.add(time.Hour)
	_, _, err := rest(s)
	w.must(err)
}

// Five consumers are CREATING at a time.
func TestCreatingConsumers(t *testing.T) {
	bubble(t, Options{StreamTransition: 2 * time.Second, ConsumerLimit: 8}, func(w caller, srv *Server, arn string) {
		register := func(name string) error {
			_, err := w.api.RegisterStreamConsumer(w.ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: aws.String(srv.StreamARN("s")), ConsumerName: &name})
			return err
		}
		for i := range 5 {
			w.must(register(fmt.Sprint(i)))
		}
		refused(w, register("5"), "LimitExceededException")
		time.Sleep(2 * time.Second)
		w.must(register("5"))
		w.must(register("6"))
		refused(w, register("7"), "LimitExceededException") // the stream's limit
	})
}

// A consumer has 2 MiB a second of a shard, whatever others read.
func TestSubscriptionRate(t *testing.T) {
	bubble(t, Options{}, func(w caller, srv *Server, arn string) {
		for range 21 {
			_, err := srv.PutShard("s", shard0, "k", make([]byte, 1<<20-1))
			w.must(err)
		}
		began := time.Now()
		s := w.subscribe(arn, shard0, trimHorizon)
		for n := 0; n < 21; n += len(w.event(s).Records) {
		}
		same(w, "20 MiB took", time.Since(began).Round(10*time.Millisecond), 10*time.Second)
	})
}

// Each fault looks as it does on a real connection, over HTTP/2 and HTTP/1.1 as well
// as in memory.
func TestStreamFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		do   Action
		want string // of the error; "": a clean end
	}{
		{"ends", EndStream(1), ""},
		{"fails", FailStream(1, "KMSAccessDeniedException", "no"), "KMSAccessDeniedException"},
		{"cut", CutStream(1), "cut"},
		{"silent", Silence(1), "silent"},
	} {
		for name, world := range connections(t) {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				w, srv, proto := world(t)
				w.must(srv.CreateStream("s", 1))
				w.put("s", "a")
				srv.Fault(Fault{Op: "SubscribeToShard", Do: c.do})
				arn := w.consumer("s", "app")
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				body := w.body(ctx, arn)
				got, err := frameTypes(body)
				if len(got) < 2 || got[0] != "initial-response" || got[1] != "SubscribeToShardEvent" {
					t.Errorf("got %v", got)
				}
				switch c.want {
				case "":
					w.must(err)
				case "cut":
					if err == nil || ctx.Err() != nil {
						t.Errorf("got %v, want a cut", err)
					}
				case "silent":
					if ctx.Err() == nil {
						t.Errorf("got %v, want silence", err)
					}
				default:
					w.must(err)
					same(t, "last frame", got[len(got)-1], c.want)
				}
				same(t, "protocol", *proto, strings.Fields(name)[0])
			})
		}
	}
}

// body posts SubscribeToShard by hand: the SDK tells a cut from an end no more.
func (w caller) body(ctx context.Context, consumer string) io.ReadCloser {
	w.Helper()
	o := w.api.Options()
	text := fmt.Sprintf(`{"ConsumerARN":%q,"ShardId":%q,"StartingPosition":{"Type":"TRIM_HORIZON"}}`, consumer, shard0)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, *o.BaseEndpoint, strings.NewReader(text))
	w.must(err)
	r.Header.Set("Content-Type", typeJSON)
	r.Header["X-Amz-Target"] = []string{targetPrefix + "SubscribeToShard"}
	resp, err := o.HTTPClient.Do(r)
	w.must(err)
	w.Cleanup(func() { resp.Body.Close() })
	same(w, "Content-Type", resp.Header.Get("Content-Type"), typeEvents)
	return resp.Body
}

// frameTypes reads frames until the stream ends, by the SDK's decoder.
func frameTypes(body io.Reader) (all []string, err error) {
	d := eventstream.NewDecoder()
	for {
		m, err := d.Decode(body, nil)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		for _, h := range []string{":event-type", ":exception-type"} {
			if v := m.Headers.Get(h); v != nil {
				all = append(all, v.String())
			}
		}
	}
}

// connections are the ways to reach a server.
func connections(t *testing.T) map[string]func(t *testing.T) (caller, *Server, *string) {
	socket := func(secure bool) func(t *testing.T) (caller, *Server, *string) {
		return func(t *testing.T) (caller, *Server, *string) {
			srv, err := Start(Options{TLS: secure, NoLimits: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { srv.Close() })
			transport := http.DefaultTransport.(*http.Transport).Clone()
			t.Cleanup(transport.CloseIdleConnections)
			if secure {
				transport.TLSClientConfig.RootCAs = srv.CertPool()
			}
			proto := new(string)
			return caller{t, dial(srv.URL(), protoOf{transport, proto}), t.Context()}, srv, proto
		}
	}
	return map[string]func(t *testing.T) (caller, *Server, *string){
		"HTTP/2.0": socket(true),
		"HTTP/1.1": socket(false),
		"HTTP/1.1 none": func(t *testing.T) (caller, *Server, *string) {
			srv, proto := New(Options{NoLimits: true}), new(string)
			return caller{t, dial(srv.URL(), protoOf{srv.Transport(), proto}), t.Context()}, srv, proto
		},
	}
}

// protoOf notes the protocol of the latest answer.
type protoOf struct {
	http.RoundTripper
	proto *string
}

func (p protoOf) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil {
		*p.proto = resp.Proto
	}
	return resp, err
}

// What the SDK's own client reads over HTTP/2, with back-pressure, is what was put.
func TestSubscribeOverHTTP2(t *testing.T) {
	w, srv, _ := connections(t)["HTTP/2.0"](t)
	w.must(srv.CreateStream("s", 1))
	const n = 40
	for i := range n {
		_, err := srv.PutShard("s", shard0, "k", append(make([]byte, 500<<10), fmt.Sprint(i)...))
		w.must(err)
	}
	s := w.subscribe(w.consumer("s", "app"), shard0, trimHorizon)
	next := 0
	for next < n {
		for _, r := range w.event(s).Records {
			if text := string(r.Data[500<<10:]); text != fmt.Sprint(next) {
				t.Fatalf("record %s, want %d", text, next)
			}
			next++
		}
	}
}

// Writers, resharding and subscribers at once: nothing is lost, and -race is content.
func TestConcurrentSubscriptions(t *testing.T) {
	w := caller{T: t, ctx: t.Context()}
	srv := New(Options{NoLimits: true})
	w.api = dial(srv.URL(), srv.Transport())
	w.must(srv.CreateStream("s", 1))
	arn := w.consumer("s", "app")
	var group sync.WaitGroup
	read := make(chan int, 3)
	for range 2 {
		// The second call takes nothing over within five seconds: it is refused.
		group.Go(func() {
			out, err := w.api.SubscribeToShard(w.ctx, &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: aws.String(shard0), StartingPosition: &trimHorizon}, ownCodec)
			var used smithy.APIError
			if errors.As(err, &used) {
				same(t, "code", used.ErrorCode(), "ResourceInUseException")
				return
			}
			texts, _, err := rest(out.GetStream())
			if err != nil {
				t.Error(err)
			}
			read <- len(strings.Fields(texts))
		})
	}
	for i := range 500 {
		_, err := srv.PutShard("s", shard0, "k", []byte(fmt.Sprint(i)))
		w.must(err)
	}
	_, err := srv.Split("s", shard0)
	w.must(err)
	group.Wait()
	same(t, "records", <-read, 500)
}
