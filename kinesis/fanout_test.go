package kinesis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// fan runs a test in virtual time, with a stream s of one shard that is read by fan-out.
func fan(t *testing.T, opts kinesistest.Options, test func(t *testing.T, srv *kinesistest.Server, s *Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(opts)
		check(t, srv.CreateStream("s", 1))
		time.Sleep(opts.StreamTransition)
		test(t, srv, NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app"}))
	})
}

// write puts numbered records for so long, one every so often, from a goroutine.
func write(t *testing.T, srv *kinesistest.Server, every, during time.Duration) (written *int, done chan struct{}) {
	written, done = new(int), make(chan struct{})
	go func() {
		defer close(done)
		for began := time.Now(); time.Since(began) < during; time.Sleep(every) {
			must2(srv.Put("s", "k", fmt.Append(nil, *written)))
			*written++
		}
	}()
	return written, done
}

// readUntil reads until the writer is done and the shard is at its tip, and fails
// unless the records are numbered without gap or repeat.
func readUntil(t *testing.T, r kinetl.Reader, written *int, done chan struct{}) {
	t.Helper()
	next := 0
	for {
		f := must(nextFetch(t, r))
		for _, rec := range f.Records {
			if string(rec.Data) != fmt.Sprint(next) {
				t.Fatalf("read record %s, want %d", rec.Data, next)
			}
			next++
		}
		if f.Release != nil {
			f.Release()
		}
		select {
		case <-done:
			if next == *written {
				return
			}
		default:
		}
	}
}

func nextFetch(t *testing.T, r kinetl.Reader) (kinetl.Fetch, error) { return next(t.Context(), r) }

// Subscriptions are renewed when their five minutes are over, while records keep
// coming: no gap, no repeat, and no other call.
func TestRenewal(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		written, done := write(t, srv, 70*time.Millisecond, 32*time.Minute)
		readUntil(t, open(t, s, shard0, oldest), written, done)
		if n := srv.Count("SubscribeToShard"); n != 7 {
			t.Errorf("subscribed %d times in 32 minutes", n)
		}
		if n := srv.Count("GetRecords") + srv.Count("GetShardIterator"); n != 0 {
			t.Errorf("polled %d times", n)
		}
		if n := srv.Count("RegisterStreamConsumer") + srv.Count("DescribeStreamConsumer"); n != 3 {
			t.Errorf("%d calls about the consumer, want describe, register, describe", n)
		}
	})
}

// An idle shard is renewed too, and goes on where it was: at the continuation number,
// however long there is nothing.
func TestIdleRenewal(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		must2(srv.Put("s", "k", []byte("0")))
		r := open(t, s, shard0, oldest)
		began := time.Now()
		for time.Since(began) < 40*time.Minute {
			must(nextFetch(t, r))
		}
		must2(srv.Put("s", "k", []byte("1")))
		if got, _ := drain(t, r); !slices.Equal(got, []string{"1"}) {
			t.Errorf("read %q", got)
		}
		var refused []string
		for _, c := range srv.Calls() {
			if c.Code != "" && c.Op != "DescribeStreamConsumer" {
				refused = append(refused, c.Op+" "+c.Code)
			}
		}
		if refused != nil {
			t.Errorf("refused: %q", refused)
		}
	})
}

// KCL complaint 7: a handler that is slow for ten minutes, again and again, leads to no
// warning, no repeat and no failed call, whether the connection was cut meanwhile or
// not; what waits is one event, and the shard's goroutines are none.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		srv := kinesistest.New(kinesistest.Options{})
		check(t, srv.CreateStream("s", 1))
		s := NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		written, done := write(t, srv, time.Second, time.Hour)
		r := open(t, s, shard0, oldest)
		n := 0
		for !isClosed(done) || n < *written {
			f := must(nextFetch(t, r))
			for _, rec := range f.Records {
				if string(rec.Data) != fmt.Sprint(n) {
					t.Fatalf("read record %s, want %d", rec.Data, n)
				}
				n++
			}
			if n%100 == 0 || len(f.Records) > 100 {
				time.Sleep(10 * time.Minute)
			}
		}
		for _, c := range srv.Calls() {
			if c.Op == "SubscribeToShard" && c.Code != "" {
				t.Errorf("refused: %+v", c)
			}
		}
		if log.Len() > 0 {
			t.Errorf("logged: %s", &log)
		}
	})
}

func isClosed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// A connection that went dead without a word is given up when an idle shard would
// long have had an event; time in which nobody read does not count.
func TestHalfOpen(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Times: 1, Do: kinesistest.Silence(2)})
		must2(srv.Put("s", "k", []byte("0")))
		r := open(t, s, shard0, oldest)
		if f := must(nextFetch(t, r)); len(f.Records) != 1 {
			t.Fatalf("read %d", len(f.Records))
		}
		time.Sleep(time.Hour) // nobody reads
		must(nextFetch(t, r)) // the second event, which was sent before the silence
		must2(srv.Put("s", "k", []byte("1")))
		began := time.Now()
		f := must(nextFetch(t, r))
		if took := time.Since(began); len(f.Records) != 1 || string(f.Records[0].Data) != "1" || took < silence || took > silence+2*time.Second {
			t.Errorf("after %s: read %v", took, f.Records)
		}
	})
}

// R3, R5: whatever ends a subscription, the next one goes on where it was, and only
// the confirmed end of the shard is its end.
func TestWhatEndsASubscription(t *testing.T) {
	for name, c := range map[string]kinesistest.Action{
		"it ends without anything":                kinesistest.EndStream(0),
		"it ends early":                           kinesistest.EndStream(1),
		"it is cut in a frame":                    kinesistest.CutStream(1),
		"it is cut before an event":               kinesistest.CutStream(0),
		"the service fails":                       kinesistest.FailStream(1, "InternalFailureException", "try again"),
		"another subscription takes over":         kinesistest.FailStream(1, "ResourceInUseException", "taken"),
		"KMS throttles":                           kinesistest.FailStream(1, "KMSThrottlingException", "slowly"),
		"an exception that nobody knows":          kinesistest.FailStream(0, "SomethingNew", "what"),
		"the connection is lost before an answer": kinesistest.LoseAnswer(),
		"the call is throttled":                   kinesistest.Fail(400, "LimitExceededException", "Rate exceeded"),
		"another subscription exists":             kinesistest.Fail(400, "ResourceInUseException", "Another active subscription exists"),
		"the service fails to answer":             kinesistest.Fail(500, "InternalFailure", "try again"),
		"an end that is none":                     kinesistest.FalseEnd(1),
		"an end without children":                 kinesistest.NoChildren(),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
				srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Times: 4, Do: c})
				must2(srv.Put("s", "k", []byte("0")))
				r := open(t, s, shard0, oldest)
				began := time.Now()
				first, _ := drain(t, r)
				must2(srv.Put("s", "k", []byte("1")))
				second, ended := drain(t, r)
				if !slices.Equal(first, []string{"0"}) || !slices.Equal(second, []string{"1"}) || ended {
					t.Errorf("read %q, then %q, ended %v", first, second, ended)
				}
				must2(srv.Put("s", "k", []byte("2")))
				must(srv.Split("s", shard0))
				third, ended := drain(t, r)
				for !ended {
					var more []string
					more, ended = drain(t, r)
					third = append(third, more...)
				}
				if !slices.Equal(third, []string{"2"}) {
					t.Errorf("read %q to the end", third)
				}
				if took := time.Since(began); took > 90*time.Second {
					t.Errorf("it took %s", took)
				}
				if n, err := srv.Subscriptions("s"); n != 0 || err != nil {
					t.Errorf("%d subscriptions remain (%v)", n, err)
				}
			})
		})
	}
}

// The next call comes five seconds after one that succeeded, not before: it would be
// refused. Shards that are cut off together don't come back together.
func TestFiveSecondsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{})
		check(t, srv.CreateStream("s", 20))
		s := NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app"})
		srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Do: kinesistest.EndStream(1)})
		ctx, cancel := context.WithTimeout(t.Context(), 31*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for shard := range shards(t, s) {
			r := open(t, s, shard, oldest)
			all.Go(func() {
				for {
					if _, err := next(ctx, r); err != nil {
						return
					}
				}
			})
		}
		all.Wait()
		calls, instants := map[string]int{}, map[time.Time]int{}
		for _, c := range srv.Calls() {
			if c.Op == "SubscribeToShard" {
				calls[c.Shard]++
				instants[c.At.Truncate(time.Millisecond)]++
				if c.Code != "" {
					t.Errorf("%s was refused: %s", c.Shard, c.Code)
				}
			}
		}
		for shard, n := range calls {
			if n < 6 || n > 7 {
				t.Errorf("%s was subscribed to %d times in 31 seconds", shard, n)
			}
		}
		if len(instants) < 60 {
			t.Errorf("%d calls in %d instants", 20*7, len(instants))
		}
	})
}

// R5: a server that says nothing at the end of a closed shard, as kinesis-local does,
// is believed only when the shard was listed as closed, and a whole subscription that
// began after that has brought nothing.
func TestShardEndThatIsNotTold(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Do: kinesistest.NoEnd()})
		must2(srv.Put("s", "k", []byte("0")))
		r := open(t, s, shard0, oldest)
		drain(t, r)
		must2(srv.Put("s", "k", []byte("1")))
		must(srv.Split("s", shard0))
		began := time.Now()
		var got []string
		for ended := false; !ended; {
			var more []string
			more, ended = drain(t, r)
			got = append(got, more...)
			shards(t, s) // as the engine does now and then
			if time.Since(began) > 20*time.Minute {
				t.Fatal("it does not end")
			}
		}
		if took := time.Since(began); !slices.Equal(got, []string{"1"}) || took < 5*time.Minute {
			t.Errorf("read %q, ended after %s", got, took)
		}
	})
}

// Two readers of one shard under one consumer, as in a moment of a lease race, don't
// wear each other out: each leaves the other time, and the calls stay few.
func TestTwoReadersOfOneShard(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		written, done := write(t, srv, 100*time.Millisecond, 2*time.Minute)
		other := NewSource(s.opts)
		ctx, lost := context.WithCancel(t.Context())
		gone := make(chan struct{})
		zombie := open(t, other, shard0, oldest)
		go func() {
			defer close(gone)
			defer zombie.Close()
			for {
				if _, err := next(ctx, zombie); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("the other reader: %v", err)
					}
					return
				}
			}
		}()
		time.AfterFunc(40*time.Second, lost) // the lease tells
		time.Sleep(6 * time.Second)
		readUntil(t, open(t, s, shard0, oldest), written, done)
		<-gone
		if n := srv.Count("SubscribeToShard"); n > 25 {
			t.Errorf("%d calls in two minutes", n)
		}
	})
}

// KMS and permissions: what somebody must see to is reported at once, by its kind.
func TestLastingRefusals(t *testing.T) {
	for code, hint := range map[string]string{
		"KMSAccessDeniedException": "", "KMSDisabledException": "", "KMSInvalidStateException": "", "KMSNotFoundException": "", "KMSOptInRequired": "",
		"AccessDeniedException": "allow kinesis:SubscribeToShard", "ValidationException": "",
	} {
		for where, do := range map[string]kinesistest.Action{
			"call": kinesistest.Fail(400, code, "so it is"), "stream": kinesistest.FailStream(0, code, "so it is"),
		} {
			if where == "stream" && !strings.HasPrefix(code, "KMS") {
				continue
			}
			t.Run(code+"/"+where, func(t *testing.T) {
				fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
					srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Do: do})
					r := open(t, s, shard0, oldest)
					began := time.Now()
					_, err := nextFetch(t, r)
					if err == nil || !strings.Contains(err.Error(), code) || !strings.Contains(err.Error(), hint) || !strings.Contains(err.Error(), "s/"+shard0) || strings.Contains(err.Error(), "\n") {
						t.Errorf("got %v", err)
					}
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("after %s", took)
					}
				})
			})
		}
	}
}

// A shard that can't be subscribed to again and again says so, and how often.
func TestLastingFailureOfFanOut(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Do: kinesistest.Fail(500, "InternalFailure", "try again")})
		r := open(t, s, shard0, oldest)
		began := time.Now()
		_, err := nextFetch(t, r)
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "17 times in a row") || took < time.Minute || took > 3*time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// A stop ends any wait, and the reader is good for more.
func TestStopAndGoOn(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		must2(srv.Put("s", "k", []byte("0")))
		r := open(t, s, shard0, oldest)
		drain(t, r)
		for i, wait := range []time.Duration{time.Millisecond, time.Second, 3 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			for {
				_, err := next(ctx, r)
				if err == nil {
					continue
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("stopped after %s: %v", wait, err)
				}
				break
			}
			cancel()
			must2(srv.Put("s", "k", fmt.Append(nil, i+1)))
			if got, _ := drain(t, r); !slices.Equal(got, []string{fmt.Sprint(i + 1)}) {
				t.Errorf("then read %q", got)
			}
		}
	})
}

// Closing a reader ends its subscription at once.
func TestCloseEndsTheSubscription(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		r := open(t, s, shard0, oldest)
		must(nextFetch(t, r))
		if n := must(srv.Subscriptions("s")); n != 1 {
			t.Fatalf("%d subscriptions", n)
		}
		began := time.Now()
		check(t, r.Close())
		synctest.Wait()
		if n := must(srv.Subscriptions("s")); n != 0 || time.Since(began) != 0 {
			t.Errorf("%d subscriptions after %s", n, time.Since(began))
		}
	})
}

// R27: bytes are known before anything is reserved for them, and a shard that waits
// for an event reserves nothing.
func TestReadyKnowsTheSize(t *testing.T) {
	fan(t, kinesistest.Options{NoLimits: true}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		r := open(t, s, shard0, oldest)
		if n := must(r.Ready(t.Context())); n != idlePageBytes { // the first event, without records
			t.Errorf("reserves %d for an empty event", n)
		}
		must(r.Next(t.Context()))
		began := time.Now()
		time.AfterFunc(2*time.Second, func() { must2(srv.Put("s", "k", make([]byte, 700<<10))) })
		n := must(r.Ready(t.Context()))
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("ready after %s, the event comes after 2 s", took)
		}
		if again := must(r.Ready(t.Context())); again != n {
			t.Errorf("%d bytes, asked again %d", n, again)
		}
		f := must(r.Next(t.Context()))
		if f.Bytes != 700<<10+1 || n < f.Bytes || n > 3*f.Bytes {
			t.Errorf("reserves %d for %d", n, f.Bytes)
		}
	})
}

// R25: a shard that is at its tip was caught up when it was subscribed to, at least.
func TestCaughtUpByFanOut(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		must2(srv.Put("s", "k", []byte("0")))
		time.Sleep(time.Minute)
		r := open(t, s, shard0, oldest)
		began := time.Now()
		for time.Since(began) < 11*time.Minute {
			f := must(nextFetch(t, r))
			if !f.CaughtUp.IsZero() && (f.CaughtUp.Before(began) || time.Since(f.CaughtUp) > 5*time.Minute+time.Second) {
				t.Fatalf("caught up at %s, now is %s", f.CaughtUp, time.Now())
			}
			if f.CaughtUp.IsZero() != (f.Lag > 0) {
				t.Fatalf("lag %s, caught up %s", f.Lag, f.CaughtUp)
			}
		}
	})
}

// A consumer that is deleted while it is read is registered again, and reading goes
// on where it was.
func TestConsumerIsDeletedUnderneath(t *testing.T) {
	fan(t, kinesistest.Options{StreamTransition: 3 * time.Second}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		written, done := write(t, srv, 500*time.Millisecond, 10*time.Minute)
		r := open(t, s, shard0, oldest)
		go func() {
			for range 3 {
				time.Sleep(2 * time.Minute)
				arn := must(srv.Consumers("s"))[0]
				must(s.opts.Client.DeregisterStreamConsumer(t.Context(), &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn}))
			}
		}()
		readUntil(t, r, written, done)
		if n := srv.Count("RegisterStreamConsumer"); n != 4 {
			t.Errorf("registered %d times, want once and after each of 3 deletions", n)
		}
	})
}

// A consumer that is named by its ARN is used as it is: no call about it, and when it
// is gone an error that names it.
func TestConsumerByARN(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		out := must(s.opts.Client.RegisterStreamConsumer(t.Context(), &kinesis.RegisterStreamConsumerInput{StreamARN: aws.String(srv.StreamARN("s")), ConsumerName: aws.String("theirs")}))
		arn := aws.ToString(out.Consumer.ConsumerARN)
		must2(srv.Put("s", "k", []byte("0")))
		for _, key := range []string{"s", srv.StreamARN("s")} {
			opts := s.opts
			opts.ConsumerName, opts.ConsumerARNs = "", map[string]string{key: arn}
			named := NewSource(opts)
			r := open(t, named, shard0, oldest)
			if got, _ := drain(t, r); !slices.Equal(got, []string{"0"}) {
				t.Errorf("read %q", got)
			}
			if removed := must(named.Deregister(t.Context())); len(removed) != 0 || len(must(srv.Consumers("s"))) != 1 {
				t.Errorf("deregistered %q, which is not ours", removed)
			}
			if key == "s" {
				check(t, r.Close())
				time.Sleep(subscribeGap)
				continue
			}
			must(s.opts.Client.DeregisterStreamConsumer(t.Context(), &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn}))
			var gone *types.ResourceNotFoundException
			_, err := nextFetch(t, r)
			if !errors.As(err, &gone) || !strings.Contains(err.Error(), "registered again has another ARN") {
				t.Errorf("when it is gone: %v", err)
			}
		}
		if n := srv.Count("RegisterStreamConsumer") + srv.Count("DescribeStreamConsumer"); n != 1 {
			t.Errorf("%d calls about consumers", n-1)
		}
	})
}

// End of a reader is io.EOF again and again.
func TestEndStaysTheEnd(t *testing.T) {
	inBoth(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		must(srv.Split("s", shard0))
		r := open(t, s, shard0, oldest)
		drain(t, r)
		for range 2 {
			if _, err := nextFetch(t, r); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
		}
	})
}
