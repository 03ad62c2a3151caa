package kinesistest

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

const throttleCode = "ProvisionedThroughputExceededException"

// tryGet reads and returns the error.
func (w *world) tryGet(it string) error {
	_, err := w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{ShardIterator: &it})
	return err
}

// A shard serves five calls in any second, each shard for itself.
func TestFiveReadsPerSecond(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 2))
	it, other := w.horizon("s", shard0), w.horizon("s", shard1)
	for range 5 {
		w.must(w.tryGet(it))
		w.clock.add(100 * time.Millisecond)
	}
	refused(t, w.tryGet(it), throttleCode)
	w.must(w.tryGet(other))
	w.clock.add(500 * time.Millisecond) // the first of the five is a second old
	w.must(w.tryGet(it))
	refused(t, w.tryGet(it), throttleCode)
}

// A page of 10 MiB uses up five seconds; 2 MiB one.
func TestReadBytesPerSecond(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1))
	for range 12 {
		_, err := w.srv.PutShard("s", shard0, "k", make([]byte, 1<<20-1))
		w.must(err)
	}
	it := *w.get(w.horizon("s", shard0), 0).NextShardIterator
	w.clock.add(5*time.Second - time.Millisecond)
	refused(t, w.tryGet(it), throttleCode)
	w.clock.add(time.Millisecond)
	it = *w.get(it, 0).NextShardIterator // 2 MiB
	w.clock.add(time.Second - time.Millisecond)
	refused(t, w.tryGet(it), throttleCode)
	w.clock.add(time.Millisecond)
	w.must(w.tryGet(it))
}

// A shard takes 1000 records or 1 MiB a second; what is over has an error code in
// its entry, and the rest is stored.
func TestWriteLimits(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1))
	put := func(records, size int) int32 {
		in := &kinesis.PutRecordsInput{StreamName: aws.String("s")}
		for range records {
			in.Records = append(in.Records, types.PutRecordsRequestEntry{PartitionKey: aws.String("k"), Data: make([]byte, size)})
		}
		out, err := w.api.PutRecords(w.ctx, in)
		w.must(err)
		failed := int32(0)
		for _, r := range out.Records {
			if aws.ToString(r.ErrorCode) == throttleCode && r.SequenceNumber == nil && strings.Contains(*r.ErrorMessage, shard0) {
				failed++
			}
		}
		same(w, "FailedRecordCount", *out.FailedRecordCount, failed)
		return failed
	}
	same(w, "records 1 to 500", put(500, 1), 0)
	same(w, "records 501 to 1000", put(500, 1), 0)
	same(w, "records 1001 to 1003", put(3, 1), 3)
	w.clock.add(time.Second)
	same(w, "more than a MiB", put(12, 100<<10), 2)
	_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: aws.String("s"), PartitionKey: aws.String("k"), Data: make([]byte, 100<<10)})
	refused(t, err, throttleCode)
	w.clock.add(time.Second)
	same(w, "a second later", put(10, 100<<10), 0)
	records, err := w.srv.Records("s", shard0)
	w.must(err)
	same(w, "records stored", len(records), 1020)
}

// A record over 1 MiB uses up as many seconds as it has MiB.
func TestLargeRecordsStretchTheWindow(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1))
	_, err := w.api.UpdateMaxRecordSize(w.ctx, &kinesis.UpdateMaxRecordSizeInput{StreamARN: aws.String(w.srv.StreamARN("s")), MaxRecordSizeInKiB: aws.Int32(10240)})
	w.must(err)
	put := func(size int) error {
		_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: aws.String("s"), PartitionKey: aws.String("k"), Data: make([]byte, size)})
		return err
	}
	w.must(put(10<<20 - 1))
	w.clock.add(10*time.Second - time.Millisecond)
	refused(t, put(1), throttleCode)
	w.clock.add(time.Millisecond)
	w.must(put(1))
	if put(10<<20) == nil {
		t.Error("data of 10 MiB and a key were taken")
	}
}

// NoLimits switches rates off and nothing else.
func TestNoLimits(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 1))
	it := w.horizon("s", shard0)
	for range 20 {
		w.must(w.tryGet(it))
	}
	in := &kinesis.PutRecordsInput{StreamName: aws.String("s")}
	for range 10 {
		in.Records = append(in.Records, types.PutRecordsRequestEntry{PartitionKey: aws.String("k"), Data: make([]byte, 1<<20-1)})
	}
	out, err := w.api.PutRecords(w.ctx, in)
	w.must(err)
	same(w, "failed", *out.FailedRecordCount, 0)
	in.Records = append(in.Records, types.PutRecordsRequestEntry{PartitionKey: aws.String("k"), Data: []byte("x")})
	_, err = w.api.PutRecords(w.ctx, in)
	refused(t, err, "InvalidArgumentException")
}

// Partition keys have 1 to 256 characters.
func TestPartitionKeyLength(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1))
	put := func(key string) error {
		_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: aws.String("s"), PartitionKey: &key, Data: []byte{}})
		return err
	}
	w.must(put(strings.Repeat("\u00e9", 256)))
	refused(t, put(strings.Repeat("k", 257)), "ValidationException")
	refused(t, put(""), "ValidationException")
}

// The account's shard limit bounds every way of making shards.
func TestShardLimit(t *testing.T) {
	w := newWorld(t, Options{ShardLimit: 3})
	w.must(w.srv.CreateStream("s", 2))
	_, err := w.api.CreateStream(w.ctx, &kinesis.CreateStreamInput{StreamName: aws.String("r"), ShardCount: aws.Int32(2)})
	refused(t, err, "LimitExceededException")
	_, err = w.api.UpdateShardCount(w.ctx, &kinesis.UpdateShardCountInput{StreamName: aws.String("s"), TargetShardCount: aws.Int32(4), ScalingType: types.ScalingTypeUniformScaling})
	refused(t, err, "LimitExceededException")
	_, err = w.api.SplitShard(w.ctx, &kinesis.SplitShardInput{StreamName: aws.String("s"), ShardToSplit: aws.String(shard0), NewStartingHashKey: aws.String("9")})
	w.must(err)
	_, err = w.api.SplitShard(w.ctx, &kinesis.SplitShardInput{StreamName: aws.String("s"), ShardToSplit: aws.String(shard1), NewStartingHashKey: aws.String("200000000000000000000000000000000000000")})
	refused(t, err, "LimitExceededException")
	out, err := w.api.DescribeLimits(w.ctx, &kinesis.DescribeLimitsInput{})
	w.must(err)
	same(w, "open shards", *out.OpenShardCount, 3)
	same(w, "limit", *out.ShardLimit, 3)
}
