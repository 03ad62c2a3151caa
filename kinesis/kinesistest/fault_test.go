package kinesistest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
)

// A fault strikes the calls it names, as often as it says, until it is removed.
func TestFaultMatches(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 2))
	it, other := w.horizon("s", shard0), w.horizon("s", shard1)
	remove := w.srv.Fault(Fault{Op: "GetRecords", Stream: "s", Shard: shard0, After: 1, Times: 2, Do: Throttle()})
	var got []bool
	for range 5 {
		w.must(w.tryGet(other))
		got = append(got, w.tryGet(it) == nil)
	}
	same(w, "calls that went well", fmt.Sprint(got), "[true false false true true]")
	remove()

	remove = w.srv.Fault(Fault{Match: func(c *Call) bool { return c.Op == "GetRecords" && c.N%2 == 0 }, Do: Fail(503, "ServiceUnavailable", "come back later")})
	got = nil
	for range 4 {
		got = append(got, w.tryGet(it) == nil)
	}
	same(w, "every other call", fmt.Sprint(got), "[true false true false]")
	err := w.tryGet(it)
	w.must(err)
	err = w.tryGet(it)
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "ServiceUnavailable" {
		t.Errorf("got %v", err)
	}
	remove()
	w.must(w.tryGet(it))
	w.must(w.tryGet(it))
}

// A lost answer: the write happened and the client can't know.
func TestLoseAnswer(t *testing.T) {
	srv, err := Start(Options{NoLimits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	inMemory := newWorld(t, Options{NoLimits: true})
	for name, w := range map[string]struct {
		srv *Server
		api *kinesis.Client
	}{
		"socket":    {srv, dial(srv.URL(), nil)},
		"in memory": {inMemory.srv, inMemory.api},
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.srv.CreateStream("s", 1); err != nil {
				t.Fatal(err)
			}
			w.srv.Fault(Fault{Op: "PutRecord", Times: 1, Do: LoseAnswer()})
			put := func() error {
				_, err := w.api.PutRecord(t.Context(), &kinesis.PutRecordInput{StreamName: aws.String("s"), PartitionKey: aws.String("k"), Data: []byte("x")})
				return err
			}
			if put() == nil {
				t.Error("the answer arrived")
			}
			if err := put(); err != nil {
				t.Error(err)
			}
			records, err := w.srv.Records("s", shard0)
			if err != nil || len(records) != 2 {
				t.Errorf("stored %d records (%v), want both", len(records), err)
			}
		})
	}
}

// A delay holds a call, and ends when the client gives up.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := New(Options{})
		if err := srv.CreateStream("s", 1); err != nil {
			t.Fatal(err)
		}
		srv.Fault(Fault{Op: "ListShards", Do: Delay(3 * time.Second)})
		api := dial(srv.URL(), srv.Transport())
		start := time.Now()
		if _, err := api.ListShards(t.Context(), &kinesis.ListShardsInput{StreamName: aws.String("s")}); err != nil {
			t.Fatal(err)
		}
		same(t, "time taken", time.Since(start), 3*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := api.ListShards(ctx, &kinesis.ListShardsInput{StreamName: aws.String("s")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		same(t, "time taken", time.Since(start), 4*time.Second)
	})
}

// An empty page is not the tip and not the end: it has a lag and an iterator for
// the same place.
func TestEmptyPage(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 1))
	w.put("s", "a")
	_, err := w.srv.Split("s", shard0)
	w.must(err)
	w.srv.Fault(Fault{Op: "GetRecords", Times: 2, Do: EmptyPage()})
	it := w.horizon("s", shard0)
	for range 2 {
		page := w.get(it, 0)
		same(w, "records", len(page.Records), 0)
		if page.NextShardIterator == nil || *page.MillisBehindLatest == 0 || page.ChildShards != nil {
			t.Fatalf("an empty page looks like the end: %+v", page)
		}
		it = *page.NextShardIterator
	}
	page := w.get(it, 0)
	same(w, "records", texts(page), "a")
	same(w, "children", len(page.ChildShards), 2)
}

// A partial put stores what it does not refuse.
func TestPartialPut(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 1))
	w.srv.Fault(Fault{Op: "PutRecords", Times: 1, Do: PartialPut(2)})
	in := &kinesis.PutRecordsInput{StreamName: aws.String("s")}
	for _, text := range []string{"a", "b", "c"} {
		in.Records = append(in.Records, types.PutRecordsRequestEntry{PartitionKey: aws.String("k"), Data: []byte(text)})
	}
	out, err := w.api.PutRecords(w.ctx, in)
	w.must(err)
	same(w, "failed", *out.FailedRecordCount, 2)
	same(w, "first", aws.ToString(out.Records[0].ErrorCode), throttleCode)
	same(w, "third", aws.ToString(out.Records[2].ErrorCode), "")
	same(w, "stored", texts(w.get(w.horizon("s", shard0), 0)), "c")
}

// The log has every call with what came of it, and stays bounded.
func TestCalls(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 1))
	w.put("s", "a", "b")
	w.srv.Fault(Fault{Op: "GetRecords", After: 1, Do: Throttle()})
	it := w.horizon("s", shard0)
	w.get(it, 0)
	refused(t, w.tryGet(it), throttleCode)
	w.api.DescribeStream(w.ctx, &kinesis.DescribeStreamInput{StreamName: aws.String("none")})
	var got []string
	for _, c := range w.srv.Calls() {
		got = append(got, fmt.Sprintf("%s %s %s %d %s %d %t", c.Op, c.Stream, c.Shard, c.N, c.Code, c.Records, c.Faulty))
	}
	want := []string{
		"PutRecord s  1  1 false",
		"PutRecord s  2  1 false",
		"GetShardIterator s " + shard0 + " 1  0 false",
		"GetRecords s " + shard0 + " 1  2 false",
		"GetRecords s " + shard0 + " 2 " + throttleCode + " 0 true",
		"DescribeStream none  1 ResourceNotFoundException 0 false",
	}
	same(w, "calls", fmt.Sprint(got), fmt.Sprint(want))
	same(w, "count", w.srv.Count("GetRecords"), 2)
	for range maxLoggedCalls + 5 {
		w.srv.log.add(Call{Op: "x"})
	}
	same(w, "calls kept", len(w.srv.Calls()), maxLoggedCalls)
}
