package kinesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

func register(t *testing.T, s *Source, srv *kinesistest.Server, stream, name string) {
	t.Helper()
	must(s.opts.Client.RegisterStreamConsumer(t.Context(), &kinesis.RegisterStreamConsumerInput{StreamARN: aws.String(srv.StreamARN(stream)), ConsumerName: &name}))
}

// Two workers that read many shards register one consumer together, and read when it
// is ACTIVE.
func TestConsumerIsRegisteredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{StreamTransition: 7 * time.Second})
		check(t, srv.CreateStream("s", 8))
		var all sync.WaitGroup
		for worker := range 2 {
			s := NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app"})
			for shard := range shards(t, s) {
				if (shard > "shardId-000000000003") == (worker == 0) {
					continue
				}
				must(srv.PutShard("s", shard, "k", []byte(shard)))
				r := open(t, s, shard, oldest)
				all.Go(func() {
					if f := must(next(t.Context(), r)); len(f.Records) != 1 {
						t.Errorf("%s: read %d records", shard, len(f.Records))
					}
				})
			}
		}
		all.Wait()
		if arns := must(srv.Consumers("s")); len(arns) != 1 {
			t.Errorf("consumers %q", arns)
		}
		if n := srv.Count("DescribeStreamConsumer"); n > 40 {
			t.Errorf("looked %d times", n)
		}
	})
}

// K27: however often an application is started, killed or stopped, it has one consumer.
// Another application has its own, and each is given every record.
func TestRestartsShareOneConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{StreamTransition: 7 * time.Second})
		check(t, srv.CreateStream("s", 1))
		time.Sleep(7 * time.Second)
		must2(srv.Put("s", "k", []byte("1")))
		for start := range 30 {
			for _, application := range []string{"app", "other"} {
				s := NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: application})
				r := must(s.Read(t.Context(), shards(t, s)[shard0].ID, oldest))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+start%3*20)*time.Second) // some are stopped before they read
				if f, err := next(ctx, r); err != nil && !errors.Is(err, context.DeadlineExceeded) || err == nil && len(f.Records) != 1 {
					t.Errorf("start %d of %s: %d records, %v", start, application, len(f.Records), err)
				}
				cancel()
				check(t, r.Close())
				time.Sleep(subscribeGap)
			}
		}
		if n := srv.Count("RegisterStreamConsumer"); n != 2 || len(must(srv.Consumers("s"))) != 2 {
			t.Errorf("%d registrations, consumers %q", n, must(srv.Consumers("s")))
		}
	})
}

// A consumer that is being deleted is waited for, and registered when it is gone.
func TestConsumerThatIsBeingDeleted(t *testing.T) {
	fan(t, kinesistest.Options{StreamTransition: 5 * time.Second}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		register(t, s, srv, "s", "app")
		time.Sleep(5 * time.Second)
		old := must(srv.Consumers("s"))[0]
		must(s.opts.Client.DeregisterStreamConsumer(t.Context(), &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &old}))
		must(nextFetch(t, open(t, s, shard0, oldest)))
		if now := must(srv.Consumers("s")); len(now) != 1 || now[0] == old {
			t.Errorf("consumers %q, before %q", now, old)
		}
	})
}

// Where no consumer can be had, every shard says so after a minute, not one after the
// other, and with what the service says; reading begins once there is room.
func TestNoRoomForAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{ConsumerLimit: 1})
		check(t, srv.CreateStream("s", 5))
		s := NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app"})
		register(t, s, srv, "s", "other")
		began := time.Now()
		var all sync.WaitGroup
		for shard := range shards(t, s) {
			r := open(t, s, shard, oldest)
			all.Go(func() {
				_, err := nextFetch(t, r)
				var limit *types.LimitExceededException
				if !errors.As(err, &limit) || !strings.Contains(err.Error(), "consumer app of stream s") {
					t.Errorf("%s: %v", shard, err)
				}
				if took := time.Since(began); took < time.Minute || took > 65*time.Second {
					t.Errorf("%s: after %s", shard, took)
				}
			})
		}
		all.Wait()
		must(s.opts.Client.DeregisterStreamConsumer(t.Context(), &kinesis.DeregisterStreamConsumerInput{StreamARN: aws.String(srv.StreamARN("s")), ConsumerName: aws.String("other")}))
		time.Sleep(registerTimeout)
		must(nextFetch(t, open(t, s, shard0, oldest)))
	})
}

// Calls about the consumer that are throttled or not answered are repeated; those that
// are not allowed say what to allow.
func TestCallsAboutTheConsumer(t *testing.T) {
	for _, op := range []string{"DescribeStreamConsumer", "RegisterStreamConsumer"} {
		for name, c := range map[string]struct {
			do   kinesistest.Action
			want string
		}{
			"throttled":    {kinesistest.Fail(400, "LimitExceededException", "Rate exceeded"), ""},
			"not answered": {kinesistest.LoseAnswer(), ""},
			"failing":      {kinesistest.Fail(500, "InternalFailure", "try again"), ""},
			"not allowed":  {kinesistest.Fail(400, "AccessDeniedException", "no"), "name the ARN of a consumer"},
		} {
			t.Run(strings.ReplaceAll(op+"/"+name, " ", "_"), func(t *testing.T) {
				fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
					srv.Fault(kinesistest.Fault{Op: op, Times: 3, Do: c.do})
					_, err := nextFetch(t, open(t, s, shard0, oldest))
					if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "AccessDenied")) {
						t.Errorf("got %v", err)
					}
				})
			})
		}
	}
}

// R1: a stream that is created anew has lost its consumer, and gets one.
func TestConsumerOfARecreatedStream(t *testing.T) {
	fan(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		must(nextFetch(t, open(t, s, shard0, oldest)))
		check(t, srv.DeleteStream("s"))
		check(t, srv.CreateStream("s", 1))
		must2(srv.Put("s", "k", []byte("new")))
		time.Sleep(2 * time.Minute)
		if got, _ := drain(t, open(t, s, shard0, oldest)); !slices.Equal(got, []string{"new"}) {
			t.Errorf("read %q", got)
		}
	})
}

// Deregister removes the application's consumers from all streams, those of earlier
// runs too, and nobody else's.
func TestDeregister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{StreamTransition: 2 * time.Second})
		for _, name := range []string{"a", "b", "c"} {
			check(t, srv.CreateStream(name, 1))
		}
		s := NewSource(Options{Client: client(srv.Transport()), Consumer: FanOut, ConsumerName: "app"})
		register(t, s, srv, "a", "app")
		register(t, s, srv, "b", "other")
		register(t, s, srv, "c", "app") // still CREATING
		removed := must(s.Deregister(t.Context()))
		if len(removed) != 2 || !strings.Contains(removed[0], "stream/a/consumer/app:") || !strings.Contains(removed[1], "stream/c/consumer/app:") {
			t.Errorf("removed %q", removed)
		}
		for stream, want := range map[string]int{"a": 0, "b": 1, "c": 0} {
			if n := len(must(srv.Consumers(stream))); n != want {
				t.Errorf("stream %s has %d consumers", stream, n)
			}
		}
		if again := must(s.Deregister(t.Context())); len(again) != 0 {
			t.Errorf("removed again %q", again)
		}
		time.Sleep(2 * time.Second)
		register(t, s, srv, "a", "app")
		time.Sleep(2 * time.Second)
		srv.Fault(kinesistest.Fault{Op: "DeregisterStreamConsumer", Do: kinesistest.Fail(400, "AccessDeniedException", "no")})
		if _, err := s.Deregister(t.Context()); err == nil || !strings.Contains(err.Error(), "deregister consumer app of stream a") {
			t.Errorf("not allowed: %v", err)
		}
	})
}

// What check says before anything is registered: the price, and whether there is room.
func TestFanOutQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{})
		check(t, srv.CreateStream("free", 4))
		check(t, srv.CreateStream("full", 1))
		check(t, srv.CreateStream("ours", 2))
		check(t, srv.CreateStream("theirs", 2))
		s := NewSource(Options{Client: client(srv.Transport()), Consumer: FanOut, ConsumerName: "app"})
		_, err := s.opts.Client.CreateStream(t.Context(), &kinesis.CreateStreamInput{StreamName: aws.String("demand"), StreamModeDetails: &types.StreamModeDetails{StreamMode: types.StreamModeOnDemand}})
		check(t, err)
		for i := range 20 {
			register(t, s, srv, "full", fmt.Sprint("other-", i))
		}
		register(t, s, srv, "ours", "app")
		register(t, s, srv, "theirs", "granted")
		arn := must(srv.Consumers("theirs"))[0]
		s.opts.ConsumerARNs = map[string]string{"theirs": arn}
		var lines, faults []string
		for _, q := range must(s.FanOutQuotas(t.Context())) {
			lines = append(lines, q.String())
			if err := q.Err(); err != nil {
				faults = append(faults, err.Error())
			}
		}
		want := []string{
			"demand: app would be consumer 1 of 20; fan-out costs $0.050 per GB read (us-east-1 list price)",
			"free: app would be consumer 1 of 20; fan-out costs 4 shard(s) x $0.015 an hour = $43.80 a month, and $0.013 per GB read (us-east-1 list price)",
			"full: app would be consumer 21 of 20; fan-out costs 1 shard(s) x $0.015 an hour = $10.95 a month, and $0.013 per GB read (us-east-1 list price)",
			"ours: app is one of 1 consumers, at most 20; fan-out costs 2 shard(s) x $0.015 an hour = $21.90 a month, and $0.013 per GB read (us-east-1 list price)",
			"theirs: by " + arn + "; fan-out costs 2 shard(s) x $0.015 an hour = $21.90 a month, and $0.013 per GB read (us-east-1 list price)",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		if len(faults) != 1 || !strings.Contains(faults[0], "stream full has 20 of the 20 consumers") {
			t.Errorf("faults %q", faults)
		}
		if n := srv.Count("RegisterStreamConsumer"); n != 22 {
			t.Errorf("registered %d", n-22)
		}
	})
}
