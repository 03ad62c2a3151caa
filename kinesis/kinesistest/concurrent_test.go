package kinesistest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// Writers, a resharder and readers at once: every record that was put is read
// exactly once and in its writer's order, from parents to children.
func TestConcurrentUse(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 2))
	const writers, each = 4, 300
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for n := range each {
				if _, _, err := w.srv.Put("s", fmt.Sprint("writer-", i), []byte(fmt.Sprint(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Go(func() {
		for range 3 {
			for _, n := range []int32{4, 3, 2} {
				_, err := w.api.UpdateShardCount(w.ctx, &kinesis.UpdateShardCountInput{StreamName: aws.String("s"), TargetShardCount: &n, ScalingType: types.ScalingTypeUniformScaling})
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if len(w.get(w.horizon("s", shard0), 10).Records) > 10 {
					t.Error("a page over its limit")
				}
			}
		}
	})
	group.Wait()
	close(stop)
	reader.Wait()

	next := map[string]int{}
	for _, sh := range w.shards("s") { // parents have lower ids than their children
		for it := w.horizon("s", *sh.ShardId); ; {
			page := w.get(it, 100)
			for _, r := range page.Records {
				if want := fmt.Sprint(next[*r.PartitionKey]); string(r.Data) != want {
					t.Fatalf("%s: record %s where %s is due", *r.PartitionKey, r.Data, want)
				}
				next[*r.PartitionKey]++
			}
			if page.NextShardIterator == nil || *page.MillisBehindLatest == 0 && len(page.Records) == 0 {
				break
			}
			it = *page.NextShardIterator
		}
	}
	for i := range writers {
		same(w, fmt.Sprint("records of writer ", i), next[fmt.Sprint("writer-", i)], each)
	}
}

// Whatever the target, the open shards cover every key once, and every shard but
// the first ones has one parent or two adjacent ones.
func TestScaleCoversKeys(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 3))
	st, err := w.srv.ready("s")
	w.must(err)
	defer st.mu.Unlock()
	for _, n := range []int{5, 7, 4, 8, 3, 2, 1, 2, 3} {
		st.scale(n, w.clock.Now())
		same(w, "open shards", len(st.open), n)
		low := hashKey{}
		for i, sh := range st.open {
			if sh.low != low || sh.low != uniform(i, n) {
				t.Fatalf("%d shards: the %d. starts at %s, want %s", n, i, sh.low, uniform(i, n))
			}
			low = sh.high.next()
		}
		same(w, "end", st.open[n-1].high, maxHashKey)
	}
	for _, sh := range st.shards[3:] {
		switch len(sh.parents) {
		case 1:
		case 2:
			if !adjacent(st.shards[sh.parents[0]], st.shards[sh.parents[1]]) {
				t.Errorf("parents of %s are not adjacent", sh.id())
			}
		default:
			t.Errorf("%s has parents %v", sh.id(), sh.parents)
		}
		for _, p := range sh.parents {
			if !st.shards[p].end.less(sh.start) {
				t.Errorf("%s starts before its parent ended", sh.id())
			}
		}
	}
}

// An on-demand stream begins with four shards and isn't scaled by hand.
func TestOnDemand(t *testing.T) {
	w := newWorld(t, Options{})
	_, err := w.api.CreateStream(w.ctx, &kinesis.CreateStreamInput{StreamName: aws.String("s"), StreamModeDetails: &types.StreamModeDetails{StreamMode: types.StreamModeOnDemand}})
	w.must(err)
	same(w, "shards", ids(w.shards("s")), "0 1 2 3")
	_, err = w.api.UpdateShardCount(w.ctx, &kinesis.UpdateShardCountInput{StreamName: aws.String("s"), TargetShardCount: aws.Int32(8), ScalingType: types.ScalingTypeUniformScaling})
	refused(t, err, "ValidationException")
}

// ListShards never returns more than 1000 shards, whatever MaxResults says.
func TestThousandShardsPerPage(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1001))
	out, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: aws.String("s"), MaxResults: aws.Int32(10000)})
	w.must(err)
	same(w, "first page", len(out.Shards), 1000)
	out, err = w.api.ListShards(w.ctx, &kinesis.ListShardsInput{NextToken: out.NextToken})
	w.must(err)
	same(w, "second page", ids(out.Shards), "1000")
}

// The Go helpers report what they can't do.
func TestHelpersRefuse(t *testing.T) {
	srv := New(Options{})
	if err := srv.CreateStream("s", 3); err != nil {
		t.Fatal(err)
	}
	_, _, unknown := srv.Put("none", "k", nil)
	_, closed := srv.Merge("s", shard0, shard2)
	_, missing := srv.Split("s", "shardId-000000000009")
	for _, c := range []struct {
		err  error
		says string
	}{
		{srv.CreateStream("s", 1), "already exists"},
		{srv.CreateStream("a b", 1), "streamName"},
		{srv.CreateStream("t", 0), "0 shards"},
		{unknown, "not found"},
		{closed, "not adjacent"},
		{missing, "shardId-000000000009"},
		{srv.DeleteStream("none"), "not found"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("got %v, want an error that says %q", c.err, c.says)
		}
	}
}
