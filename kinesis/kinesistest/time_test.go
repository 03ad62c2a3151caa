package kinesistest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

const (
	shard1 = "shardId-000000000001"
	shard2 = "shardId-000000000002"
)

// Records older than the retention period are gone; positions before the horizon
// stand for it.
func TestRetentionTrims(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 1))
	old := w.put("s", "a")[0]
	w.clock.add(time.Hour)
	w.put("s", "b", "c")
	w.clock.add(23*time.Hour - time.Millisecond)
	stale := w.horizon("s", shard0)
	same(w, "a day less a millisecond on", texts(w.get(stale, 0)), "a b c")
	w.clock.add(time.Millisecond)
	same(w, "a day on", texts(w.get(stale, 0)), "b c")
	for _, kind := range []types.ShardIteratorType{types.ShardIteratorTypeAtSequenceNumber, types.ShardIteratorTypeAfterSequenceNumber} {
		same(w, string(kind)+" trimmed", texts(w.get(w.iterator("s", shard0, kind, old, time.Time{}), 0)), "b c")
	}
	_, err := w.api.IncreaseStreamRetentionPeriod(w.ctx, &kinesis.IncreaseStreamRetentionPeriodInput{StreamName: aws.String("s"), RetentionPeriodHours: aws.Int32(48)})
	w.must(err)
	same(w, "retention raised afterwards", texts(w.get(w.horizon("s", shard0), 0)), "b c")
	w.clock.add(48 * time.Hour)
	w.put("s", "d")
	page := w.get(w.horizon("s", shard0), 0)
	same(w, "two days on", texts(page), "d")
	records, err := w.srv.Records("s", shard0)
	w.must(err)
	same(w, "records kept", len(records), 1)
}

// A closed shard leaves the listing once a retention period has passed since it was
// closed; its id is never used again, and its children still name it.
func TestClosedShardsExpire(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1))
	w.put("s", "a")
	w.clock.add(time.Hour)
	_, err := w.srv.Split("s", shard0)
	w.must(err)
	it := w.horizon("s", shard0)
	w.clock.add(24*time.Hour - time.Millisecond)
	same(w, "before", lineage(w.shards("s")), "0 closed, 1 open <0, 2 open <0")
	w.clock.add(time.Millisecond)
	same(w, "after", lineage(w.shards("s")), "1 open <0, 2 open <0")
	_, err = w.api.GetShardIterator(w.ctx, iteratorInput("s", shard0, types.ShardIteratorTypeTrimHorizon, "", time.Time{}))
	refused(w, err, "ResourceNotFoundException")
	_, err = w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{ShardIterator: &it})
	refused(w, err, "ExpiredIteratorException")
	child, err := w.srv.Merge("s", shard1, shard2)
	w.must(err)
	same(w, "next id", child, "shardId-000000000003")
}

// Filters by time, through the life of a stream that was split an hour after it
// was made and merged another hour later.
func TestShardFiltersOverTime(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1))
	made := w.clock.Now()
	w.clock.add(time.Hour)
	_, err := w.srv.Split("s", shard0)
	w.must(err)
	w.clock.add(time.Hour)
	_, err = w.srv.Merge("s", shard1, shard2)
	w.must(err)
	w.clock.add(time.Hour)

	at := func(kind types.ShardFilterType, hours float64) string {
		return w.filtered("s", types.ShardFilter{Type: kind, Timestamp: aws.Time(made.Add(time.Duration(hours * float64(time.Hour))))})
	}
	for _, c := range []struct {
		hours    float64
		at, from string
	}{
		{-5, "0", "0 1 2 3"},
		{0, "0", "0 1 2 3"},
		{0.5, "0", "0 1 2 3"},
		{1.5, "1 2", "1 2 3"},
		{2.5, "3", "3"},
	} {
		same(w, fmt.Sprint("AT_TIMESTAMP ", c.hours), at(types.ShardFilterTypeAtTimestamp, c.hours), c.at)
		same(w, fmt.Sprint("FROM_TIMESTAMP ", c.hours), at(types.ShardFilterTypeFromTimestamp, c.hours), c.from)
	}
	same(w, "AT_TRIM_HORIZON", w.filtered("s", types.ShardFilter{Type: types.ShardFilterTypeAtTrimHorizon}), "0")
	w.clock.add(22*time.Hour + 30*time.Minute) // the horizon is at 1.5 h
	same(w, "AT_TRIM_HORIZON, later", w.filtered("s", types.ShardFilter{Type: types.ShardFilterTypeAtTrimHorizon}), "1 2")
	same(w, "AT_TIMESTAMP before the horizon", at(types.ShardFilterTypeAtTimestamp, 0.5), "1 2")

	first, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: aws.String("s"), MaxResults: aws.Int32(1), ShardFilter: &types.ShardFilter{Type: types.ShardFilterTypeAtTrimHorizon}})
	w.must(err)
	second, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{NextToken: first.NextToken})
	w.must(err)
	same(w, "a token keeps its filter", ids(first.Shards)+"|"+ids(second.Shards), "1|2")
}

// An iterator lives five minutes by the server's clock, and renews with each page.
func TestIteratorsExpire(t *testing.T) {
	w := newWorld(t, Options{NoLimits: true})
	w.must(w.srv.CreateStream("s", 1))
	w.put("s", "a")
	it := w.horizon("s", shard0)
	w.clock.add(5 * time.Minute)
	next := *w.get(it, 0).NextShardIterator
	w.clock.add(time.Millisecond)
	_, err := w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{ShardIterator: &it})
	refused(w, err, "ExpiredIteratorException")
	w.get(next, 0)
}

// Page tokens live 300 seconds.
func TestTokensExpire(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("a", 2))
	w.must(w.srv.CreateStream("b", 1))
	shards, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: aws.String("a"), MaxResults: aws.Int32(1)})
	w.must(err)
	streams, err := w.api.ListStreams(w.ctx, &kinesis.ListStreamsInput{Limit: aws.Int32(1)})
	w.must(err)
	w.clock.add(300 * time.Second)
	more, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{NextToken: shards.NextToken})
	w.must(err)
	same(w, "shards", ids(more.Shards), "1")
	names, err := w.api.ListStreams(w.ctx, &kinesis.ListStreamsInput{NextToken: streams.NextToken})
	w.must(err)
	same(w, "stream", fmt.Sprint(names.StreamNames), "[b]")
	same(w, "summary", *names.StreamSummaries[0].StreamARN, w.srv.StreamARN("b"))
	w.clock.add(time.Millisecond)
	_, err = w.api.ListShards(w.ctx, &kinesis.ListShardsInput{NextToken: shards.NextToken})
	refused(w, err, "ExpiredNextTokenException")
	_, err = w.api.ListStreams(w.ctx, &kinesis.ListStreamsInput{NextToken: streams.NextToken})
	refused(w, err, "ExpiredNextTokenException")
	_, err = w.api.ListStreams(w.ctx, &kinesis.ListStreamsInput{NextToken: shards.NextToken})
	refused(w, err, "InvalidArgumentException")
}

// R1: a stream that is created again under its name is another stream: it is a
// whole second younger, and knows no iterator or sequence number of the old one.
func TestRecreatedStream(t *testing.T) {
	w := newWorld(t, Options{})
	w.must(w.srv.CreateStream("s", 1))
	n := w.put("s", "a")[0]
	it := w.horizon("s", shard0)
	created := *w.active("s").StreamCreationTimestamp
	for range 3 { // shards of later seconds than the stream
		ids, err := w.srv.Shards("s")
		w.must(err)
		_, err = w.srv.Split("s", ids[len(ids)-1])
		w.must(err)
	}
	w.must(w.srv.DeleteStream("s"))
	_, err := w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{ShardIterator: &it})
	refused(w, err, "ResourceNotFoundException")

	w.must(w.srv.CreateStream("s", 1))
	m := w.put("s", "b")[0]
	if m <= n {
		t.Errorf("%s is not larger than the old stream's %s", m, n)
	}
	if again := w.active("s").StreamCreationTimestamp.Unix(); again <= created.Unix() {
		t.Errorf("created at second %d, the old stream at %d", again, created.Unix())
	}
	_, err = w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{ShardIterator: &it})
	refused(w, err, "ResourceNotFoundException")
	_, err = w.api.GetShardIterator(w.ctx, iteratorInput("s", shard0, types.ShardIteratorTypeAfterSequenceNumber, n, time.Time{}))
	refused(w, err, "InvalidArgumentException")
	_, err = w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: aws.String("s"), StreamCreationTimestamp: &created})
	refused(w, err, "ResourceNotFoundException")
}

// Changes of a stream take Options.StreamTransition; the shards change at its end.
func TestTransitions(t *testing.T) {
	w := newWorld(t, Options{StreamTransition: 30 * time.Second, NoLimits: true})
	name := aws.String("s")
	status := func() string {
		out, err := w.api.DescribeStreamSummary(w.ctx, &kinesis.DescribeStreamSummaryInput{StreamName: name})
		w.must(err)
		return fmt.Sprint(out.StreamDescriptionSummary.StreamStatus, " ", *out.StreamDescriptionSummary.OpenShardCount)
	}
	put := func() error {
		_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: name, PartitionKey: aws.String("k"), Data: []byte("x")})
		return err
	}
	_, err := w.api.CreateStream(w.ctx, &kinesis.CreateStreamInput{StreamName: name, ShardCount: aws.Int32(1)})
	w.must(err)
	same(w, "created", status(), "CREATING 0")
	refused(w, put(), "ResourceNotFoundException")
	w.clock.add(30 * time.Second)
	same(w, "30 s later", status(), "ACTIVE 1")

	split := &kinesis.SplitShardInput{StreamName: name, ShardToSplit: aws.String(shard0), NewStartingHashKey: aws.String("1000")}
	_, err = w.api.SplitShard(w.ctx, split)
	w.must(err)
	same(w, "splitting", status(), "UPDATING 1")
	w.must(put())
	_, err = w.api.SplitShard(w.ctx, split)
	refused(w, err, "ResourceInUseException")
	w.clock.add(30 * time.Second)
	same(w, "split", status(), "ACTIVE 2")

	_, err = w.api.DeleteStream(w.ctx, &kinesis.DeleteStreamInput{StreamName: name})
	w.must(err)
	same(w, "deleting", status(), "DELETING 2")
	refused(w, put(), "ResourceNotFoundException")
	w.clock.add(30 * time.Second)
	_, err = w.api.DescribeStreamSummary(w.ctx, &kinesis.DescribeStreamSummaryInput{StreamName: name})
	refused(w, err, "ResourceNotFoundException")
}

// The Date header is the server's clock.
func TestDateHeader(t *testing.T) {
	w := newWorld(t, Options{})
	w.clock.add(1000 * time.Hour)
	resp, err := (&http.Client{Transport: w.srv.Transport()}).Get(w.srv.URL())
	w.must(err)
	same(w, "status", resp.StatusCode, http.StatusOK)
	resp = post(t, w.srv, "ListStreams", typeJSON, []byte("{}"))
	same(w, "Date", resp.Header.Get("Date"), w.clock.Now().Format(http.TimeFormat))
	if resp.Header.Get("x-amzn-RequestId") == "" {
		t.Error("no request id")
	}
}
