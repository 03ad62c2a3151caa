package kinetl_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease"
)

// fan is a rig whose stream is read by enhanced fan-out, from a server in memory.
type fan struct {
	*rig
	server *kinesistest.Server
	shards []string
	put    int
}

func newFan(t *testing.T, shards int) *fan {
	f := &fan{rig: newRig(t, 0), server: kinesistest.New(kinesistest.Options{NoLimits: true})}
	if err := f.server.CreateStream("orders", shards); err != nil {
		t.Fatal(err)
	}
	f.shards, _ = f.server.Shards("orders")
	return f
}

// worker reads through a source of its own, as a process does.
func (f *fan) worker(name string) *kinetl.Pipeline {
	p := f.rig.worker(name)
	p.Consumer.Source = kinesis.NewSource(kinesis.Options{
		Client: awskinesis.New(awskinesis.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://kinesis.test"), HTTPClient: &http.Client{Transport: f.server.Transport()},
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
			}),
		}),
		Streams: []string{"orders"}, Consumer: kinesis.FanOut, ConsumerName: "app",
	})
	return p
}

// live puts a record into each shard now and then, for so long.
func (f *fan) live(every, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		for _, shard := range f.shards {
			if _, err := f.server.PutShard("orders", shard, "k", fmt.Appendf(nil, `{"id":%d}`, f.put)); err != nil {
				f.t.Fatal(err)
			}
			f.put++
		}
	}
}

func (f *fan) subscriptions() int {
	n, err := f.server.Subscriptions("orders")
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *fan) owned(name string) (n int) {
	all, _ := f.leases.List(f.t.Context())
	for _, l := range all {
		if l.Owner == name {
			n++
		}
	}
	return n
}

func (f *fan) refused() (n int) {
	for _, c := range f.server.Calls() {
		if c.Op == "SubscribeToShard" && c.Code != "" {
			n++
		}
	}
	return n
}

// K21, K22: a table that takes nothing for three lease periods, and 64 shards whose
// events wait. Each shard keeps its one subscription and its goroutines, no lease moves,
// and what is read of the waiting records is what memory allows.
func TestFanOutBehindABlockedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards, memory = 64, 200_000
		f := newFan(t, shards)
		var blocked atomic.Int64
		for _, name := range []string{"a", "b"} {
			p := f.worker(name)
			p.Config.Memory = memory
			p.Destination = f.memory.Handle(desttest.MemoryOptions{Fault: func(ctx context.Context, step string) error {
				if step != "commit:begin" {
					return nil
				}
				return wait(ctx, time.Until(time.Unix(0, blocked.Load())))
			}})
			w := f.start(p)
			defer w.drain(t)
		}
		f.until("they share the shards", func() bool { return f.owned("a") == shards/2 && f.owned("b") == shards/2 })
		f.live(time.Second, 10*time.Second)
		f.until("all is stored", f.has(f.put))
		taken, lost, opened := f.count(kinetl.EventLeaseTaken), f.count(kinetl.EventLeaseLost), f.count(kinetl.EventOpened)
		goroutines, calls := runtime.NumGoroutine(), f.server.Count("SubscribeToShard")
		end := time.Now().Add(35 * time.Second)
		blocked.Store(end.UnixNano())
		read := f.records()
		for time.Now().Before(end) {
			f.live(100*time.Millisecond, time.Second)
			if n := f.subscriptions(); n > shards {
				t.Fatalf("%d subscriptions to %d shards", n, shards)
			}
			if n := runtime.NumGoroutine(); n > goroutines+shards {
				t.Fatalf("%d goroutines, %d before the table stopped", n, goroutines)
			}
		}
		// Small as they are, they cost what a page and a builder cost at least.
		if n := f.records() - read; n > int64(f.put)/4 {
			t.Errorf("R27: %d of %d records were read into %d bytes", n, f.put, memory)
		}
		taken, lost, opened = f.count(kinetl.EventLeaseTaken)-taken, f.count(kinetl.EventLeaseLost)-lost, f.count(kinetl.EventOpened)-opened
		if taken+lost+opened != 0 {
			t.Errorf("%d leases taken, %d lost, %d shards opened anew; want none", taken, lost, opened)
		}
		if n := f.server.Count("SubscribeToShard") - calls; n > 0 {
			t.Errorf("%d more subscriptions in 35 s", n)
		}
		f.until("all is stored", f.has(f.put))
		f.wantOrders(span(0, f.put-1)...)
		f.wantInOrder()
	})
}

// records is how many were read so far.
func (r *rig) records() (sum int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kinetl.EventFetched {
			sum += e.Records
		}
	}
	return sum
}

// K24: shards go from one worker to the other under fan-out, given back and taken by
// force from one that has lost its lease store. The two don't take the subscription from
// each other in turn, the one without leases reads no more, and no record is missing or
// twice.
func TestFanOutMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 4
		f := newFan(t, shards)
		var cut atomic.Bool
		p := f.worker("a")
		p.Consumer.Leases = &flaky{Store: f.leases, hook: func(string, lease.Lease) fate { return bad(cut.Load()) }}
		a := f.start(p)
		f.until("a has all", func() bool { return f.owned("a") == shards })
		f.live(200*time.Millisecond, 10*time.Second)
		b := f.start(f.worker("b"))
		for range 3 {
			f.live(200*time.Millisecond, 15*time.Second)
			if f.owned("a") != shards/2 || f.owned("b") != shards/2 {
				t.Fatalf("a has %d, b has %d", f.owned("a"), f.owned("b"))
			}
			cut.Store(true)
			f.live(200*time.Millisecond, 30*time.Second)
			if n := f.owned("b"); n != shards {
				t.Fatalf("b has %d of %d", n, shards)
			}
			if n := f.subscriptions(); n != shards {
				t.Errorf("%d subscriptions to %d shards: the one without leases still reads", n, shards)
			}
			cut.Store(false)
		}
		b.drain(t)
		f.live(200*time.Millisecond, 20*time.Second)
		f.until("all is stored", f.has(f.put))
		a.drain(t)
		f.wantOrders(span(0, f.put-1)...)
		f.wantInOrder()
		if n := f.refused(); n > shards {
			t.Errorf("%d subscriptions were refused", n)
		}
		if n := f.subscriptions(); n != 0 {
			t.Errorf("%d subscriptions remain", n)
		}
	})
}
