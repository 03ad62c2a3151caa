package kinesistest

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/kinetl/kinetl/kinesis/kinesistest/npmserver"
)

// servers is a set of servers that can answer a case.
type servers uint8

const (
	ours         servers = 1 << iota // this package
	kinesisLocal                     // npm kinesis-local 0.6.2
	kinesalite                       // npm kinesalite 3.3.3

	all = ours | kinesisLocal | kinesalite
)

// behaviour is one thing that the service does.
type behaviour struct {
	name string
	on   servers
	run  func(w caller)
}

// TestBehaviour asks this package's server.
func TestBehaviour(t *testing.T) {
	srv := New(Options{NoLimits: true})
	runBehaviours(t, ours, func(t *testing.T) caller { return caller{t, dial(srv.URL(), srv.Transport()), t.Context()} })
}

// TestBehaviourKinesisLocal asks kinesis-local, so that the cases hold what the
// service does and not what this package does.
func TestBehaviourKinesisLocal(t *testing.T) {
	endpoint := npmserver.KinesisLocal(t)
	runBehaviours(t, kinesisLocal, func(t *testing.T) caller {
		return caller{t, dial(endpoint, initialResponse{http.DefaultTransport}), t.Context()}
	})
}

// TestBehaviourKinesalite asks kinesalite, likewise.
func TestBehaviourKinesalite(t *testing.T) {
	endpoint := npmserver.Kinesalite(t)
	runBehaviours(t, kinesalite, func(t *testing.T) caller { return caller{t, dial(endpoint, nil), t.Context()} })
}

func runBehaviours(t *testing.T, server servers, dial func(*testing.T) caller) {
	for _, b := range behaviours() {
		if b.on&server != 0 {
			t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) { b.run(dial(t)) })
		}
	}
}

// behaviours says what Kinesis does, and which servers can be asked about it.
func behaviours() []behaviour {
	return append([]behaviour{
		{"a stream has its shards and description", all, describes},
		{"a name is used once", all, nameInUse},
		{"what is not there is not found", all, notFound},
		{"streams are listed by name in pages", ours, listsStreams},
		{"DescribeStream pages shards", ours | kinesisLocal, pagesDescription},
		{"an ARN does for a name", ours | kinesisLocal, byARN},
		{"tags are kept", all, keepsTags},
		{"retention moves both ways within bounds", all, movesRetention},

		{"records come back as they were put", all, roundTrip},
		{"sequence numbers grow and have the layout", all, sequenceNumbers},
		{"PutRecords answers in the order of the request", all, putsMany},
		{"500 records a request", ours | kinesalite, limitsRequest},
		{"1 MiB a record", all, limitsRecord},
		{"a raised maximum takes 10 MiB a record", ours | kinesisLocal, raisesRecord},
		{"keys are hashed with MD5", all, routesByHash},
		{"ExplicitHashKey decides", all, routesExplicitly},

		{"TRIM_HORIZON and LATEST", all, iteratesEnds},
		{"AT and AFTER a sequence number", all, iteratesSequence},
		{"AT a timestamp", all, iteratesTimestamp},
		{"an iterator can be used again", all, iteratorTwice},
		{"garbage is no iterator", ours | kinesalite, iteratorGarbage},
		{"another shard's sequence number is refused", ours | kinesalite, foreignSequence},
		{"Limit pages without gap or repeat", all, pagesRecords},
		{"lag above zero until the tip", ours | kinesisLocal, lagToTip},
		{"a page holds 10 MiB at most", ours, limitsPage},
	}, append(reshardBehaviours(), consumerBehaviours()...)...)
}

// stream makes a stream that is deleted when the case ends.
func (w caller) stream(shards int32) string {
	w.Helper()
	name := fmt.Sprintf("s%d", time.Now().UnixNano())
	_, err := w.api.CreateStream(w.ctx, &kinesis.CreateStreamInput{StreamName: &name, ShardCount: &shards})
	w.must(err)
	w.Cleanup(func() {
		w.api.DeleteStream(w.T.Context(), &kinesis.DeleteStreamInput{StreamName: &name})
	})
	w.active(name)
	return name
}

// active waits until a stream is ACTIVE and returns it.
func (w caller) active(stream string) *types.StreamDescription {
	w.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(20 * time.Second)
	for {
		out, err := w.api.DescribeStream(w.ctx, &kinesis.DescribeStreamInput{StreamName: &stream})
		w.must(err)
		if out.StreamDescription.StreamStatus == types.StreamStatusActive {
			return out.StreamDescription
		}
		select {
		case <-again.C:
		case <-deadline:
			w.Fatalf("stream %s stays %s", stream, out.StreamDescription.StreamStatus)
		}
	}
}

func describes(w caller) {
	before := time.Now()
	name := w.stream(3)
	d := w.active(name)
	same(w, "ARN", *d.StreamARN, "arn:aws:kinesis:us-east-1:000000000000:stream/"+name)
	same(w, "retention", *d.RetentionPeriodHours, 24)
	if at := *d.StreamCreationTimestamp; at.Before(before.Add(-5*time.Second)) || at.After(time.Now().Add(2*time.Second)) {
		w.Errorf("created at %v, which is not now, %v", at, time.Now())
	}
	width := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(3))
	same(w, "shards", ids(d.Shards), "0 1 2")
	for i, sh := range d.Shards {
		same(w, "start of "+*sh.ShardId, *sh.HashKeyRange.StartingHashKey, new(big.Int).Mul(width, big.NewInt(int64(i))).String())
		same(w, "parent of "+*sh.ShardId, aws.ToString(sh.ParentShardId), "")
		same(w, "ending number of "+*sh.ShardId, aws.ToString(sh.SequenceNumberRange.EndingSequenceNumber), "")
	}
	same(w, "end of the last", *d.Shards[2].HashKeyRange.EndingHashKey, "340282366920938463463374607431768211455")
	sum, err := w.api.DescribeStreamSummary(w.ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &name})
	w.must(err)
	same(w, "open shards", *sum.StreamDescriptionSummary.OpenShardCount, 3)
	same(w, "created, in the summary", sum.StreamDescriptionSummary.StreamCreationTimestamp.Unix(), d.StreamCreationTimestamp.Unix())
	list, err := w.api.ListStreams(w.ctx, &kinesis.ListStreamsInput{})
	w.must(err)
	if !strings.Contains(strings.Join(list.StreamNames, " "), name) {
		w.Errorf("%v does not hold %s", list.StreamNames, name)
	}
}

func nameInUse(w caller) {
	name := w.stream(1)
	_, err := w.api.CreateStream(w.ctx, &kinesis.CreateStreamInput{StreamName: &name, ShardCount: aws.Int32(1)})
	refused(w, err, "ResourceInUseException")
}

func notFound(w caller) {
	none := aws.String("nothing-here")
	_, err := w.api.DescribeStream(w.ctx, &kinesis.DescribeStreamInput{StreamName: none})
	refused(w, err, "ResourceNotFoundException")
	_, err = w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: none})
	refused(w, err, "ResourceNotFoundException")
	_, err = w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: none, PartitionKey: aws.String("k"), Data: []byte("x")})
	refused(w, err, "ResourceNotFoundException")
	name := w.stream(1)
	_, err = w.api.GetShardIterator(w.ctx, iteratorInput(name, "shardId-000000000009", types.ShardIteratorTypeLatest, "", time.Time{}))
	refused(w, err, "ResourceNotFoundException")
}

func listsStreams(w caller) {
	a, b := w.stream(1), w.stream(1)
	out, err := w.api.ListStreams(w.ctx, &kinesis.ListStreamsInput{Limit: aws.Int32(1), ExclusiveStartStreamName: aws.String(a[:len(a)-1])})
	w.must(err)
	same(w, "first page", strings.Join(out.StreamNames, " "), a)
	same(w, "more", *out.HasMoreStreams, true)
	out, err = w.api.ListStreams(w.ctx, &kinesis.ListStreamsInput{ExclusiveStartStreamName: &a})
	w.must(err)
	same(w, "second page", strings.Join(out.StreamNames, " "), b)
	same(w, "more", *out.HasMoreStreams, false)
}

func pagesDescription(w caller) {
	name := w.stream(3)
	out, err := w.api.DescribeStream(w.ctx, &kinesis.DescribeStreamInput{StreamName: &name, Limit: aws.Int32(2)})
	w.must(err)
	same(w, "first page", ids(out.StreamDescription.Shards), "0 1")
	same(w, "more", *out.StreamDescription.HasMoreShards, true)
	out, err = w.api.DescribeStream(w.ctx, &kinesis.DescribeStreamInput{StreamName: &name, ExclusiveStartShardId: out.StreamDescription.Shards[1].ShardId})
	w.must(err)
	same(w, "second page", ids(out.StreamDescription.Shards), "2")
	same(w, "more", *out.StreamDescription.HasMoreShards, false)
}

func byARN(w caller) {
	name := w.stream(1)
	arn := aws.String("arn:aws:kinesis:us-east-1:000000000000:stream/" + name)
	_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamARN: arn, PartitionKey: aws.String("k"), Data: []byte("x")})
	w.must(err)
	it, err := w.api.GetShardIterator(w.ctx, &kinesis.GetShardIteratorInput{StreamARN: arn, ShardId: aws.String(shard0), ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	w.must(err)
	out, err := w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{StreamARN: arn, ShardIterator: it.ShardIterator})
	w.must(err)
	same(w, "records", texts(out), "x")
}

func keepsTags(w caller) {
	name := w.stream(1)
	_, err := w.api.AddTagsToStream(w.ctx, &kinesis.AddTagsToStreamInput{StreamName: &name, Tags: map[string]string{"b": "2", "a": "1"}})
	w.must(err)
	_, err = w.api.RemoveTagsFromStream(w.ctx, &kinesis.RemoveTagsFromStreamInput{StreamName: &name, TagKeys: []string{"a"}})
	w.must(err)
	out, err := w.api.ListTagsForStream(w.ctx, &kinesis.ListTagsForStreamInput{StreamName: &name})
	w.must(err)
	if len(out.Tags) != 1 || *out.Tags[0].Key != "b" || *out.Tags[0].Value != "2" {
		w.Errorf("got tags %v, want b=2", out.Tags)
	}
}

func movesRetention(w caller) {
	name := w.stream(1)
	increase := func(hours int32) error {
		_, err := w.api.IncreaseStreamRetentionPeriod(w.ctx, &kinesis.IncreaseStreamRetentionPeriodInput{StreamName: &name, RetentionPeriodHours: &hours})
		return err
	}
	decrease := func(hours int32) error {
		_, err := w.api.DecreaseStreamRetentionPeriod(w.ctx, &kinesis.DecreaseStreamRetentionPeriodInput{StreamName: &name, RetentionPeriodHours: &hours})
		return err
	}
	w.must(increase(48))
	same(w, "retention", *w.active(name).RetentionPeriodHours, 48)
	refused(w, increase(30), "InvalidArgumentException")
	refused(w, decrease(60), "InvalidArgumentException")
	w.must(decrease(24))
	same(w, "retention", *w.active(name).RetentionPeriodHours, 24)
}

func roundTrip(w caller) {
	name := w.stream(1)
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(i)
	}
	key := "caf\u00e9 \"quoted\" \\ tab\t"
	put, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: &key, Data: data})
	w.must(err)
	same(w, "shard", *put.ShardId, shard0)
	page := w.get(w.horizon(name, shard0), 0)
	if len(page.Records) != 1 {
		w.Fatalf("got %d records, put one", len(page.Records))
	}
	r := page.Records[0]
	same(w, "key", *r.PartitionKey, key)
	same(w, "sequence number", *r.SequenceNumber, *put.SequenceNumber)
	if !bytes.Equal(r.Data, data) {
		w.Errorf("got data %x", r.Data)
	}
	if age := time.Since(*r.ApproximateArrivalTimestamp); age < -2*time.Second || age > time.Minute {
		w.Errorf("arrived %v ago", age)
	}
}

func sequenceNumbers(w caller) {
	name := w.stream(1)
	start := *w.shards(name)[0].SequenceNumberRange.StartingSequenceNumber
	last := start
	for _, n := range w.put(name, "a", "b", "c", "d") {
		if len(n) != len(last) || n <= last {
			w.Errorf("%s comes after %s", n, last)
		}
		last = n
		q, ok := parseSequence(n)
		first, _ := parseSequence(start)
		if !ok || q.created() != first.created() || q.index() != 0 {
			w.Errorf("%s has not the layout: %+v", n, q)
		}
		if age := time.Since(q.time()); age < -3*time.Second || age > time.Minute {
			w.Errorf("%s is of %v, which is not now", n, q.time())
		}
	}
	_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: aws.String("k"), Data: []byte("e"), SequenceNumberForOrdering: &last})
	w.must(err)
	same(w, "records", texts(w.get(w.horizon(name, shard0), 0)), "a b c d e")
}

func putsMany(w caller) {
	name := w.stream(2)
	in := &kinesis.PutRecordsInput{StreamName: &name}
	for i := range 20 {
		in.Records = append(in.Records, types.PutRecordsRequestEntry{PartitionKey: aws.String(fmt.Sprint(i)), Data: []byte(fmt.Sprint(i))})
	}
	out, err := w.api.PutRecords(w.ctx, in)
	w.must(err)
	same(w, "failed", *out.FailedRecordCount, 0)
	read := map[string]string{}
	for _, sh := range w.shards(name) {
		for _, r := range w.get(w.horizon(name, *sh.ShardId), 0).Records {
			read[string(r.Data)] = *sh.ShardId + *r.SequenceNumber
		}
	}
	same(w, "records read", len(read), 20)
	for i, r := range out.Records {
		same(w, fmt.Sprint("place of ", i), read[fmt.Sprint(i)], *r.ShardId+*r.SequenceNumber)
	}
}

func limitsRequest(w caller) {
	name := w.stream(1)
	in := &kinesis.PutRecordsInput{StreamName: &name}
	for range 501 {
		in.Records = append(in.Records, types.PutRecordsRequestEntry{PartitionKey: aws.String("k"), Data: []byte("x")})
	}
	_, err := w.api.PutRecords(w.ctx, in)
	refused(w, err, "ValidationException")
	in.Records = in.Records[:500]
	out, err := w.api.PutRecords(w.ctx, in)
	w.must(err)
	same(w, "failed", *out.FailedRecordCount, 0)
}

func limitsRecord(w caller) {
	name := w.stream(1)
	put := func(n int) error {
		_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: aws.String("k"), Data: make([]byte, n)})
		return err
	}
	if err := put(1<<20 + 1); err == nil {
		w.Error("a larger record was stored")
	}
	w.must(put(1<<20 - 1))
}

func raisesRecord(w caller) {
	name := w.stream(1)
	arn := w.active(name).StreamARN
	_, err := w.api.UpdateMaxRecordSize(w.ctx, &kinesis.UpdateMaxRecordSizeInput{StreamARN: arn, MaxRecordSizeInKiB: aws.Int32(10240)})
	w.must(err)
	w.active(name)
	_, err = w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: aws.String("k"), Data: make([]byte, 3<<20)})
	w.must(err)
	page := w.get(w.horizon(name, shard0), 0)
	if len(page.Records) != 1 || len(page.Records[0].Data) != 3<<20 {
		w.Errorf("the record did not come back")
	}
	_, err = w.api.UpdateMaxRecordSize(w.ctx, &kinesis.UpdateMaxRecordSizeInput{StreamARN: arn, MaxRecordSizeInKiB: aws.Int32(10241)})
	if err == nil {
		w.Error("a maximum over 10 MiB was taken")
	}
}

func routesByHash(w caller) {
	name := w.stream(4)
	shards := w.shards(name)
	for i := range 12 {
		key := fmt.Sprint("key-", i)
		out, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: &key, Data: []byte("x")})
		w.must(err)
		sum := md5.Sum([]byte(key))
		same(w, key, *out.ShardId, *shards[new(big.Int).Rsh(new(big.Int).SetBytes(sum[:]), 126).Int64()].ShardId)
	}
}

func routesExplicitly(w caller) {
	name := w.stream(3)
	for _, sh := range w.shards(name) {
		for _, hash := range []*string{sh.HashKeyRange.StartingHashKey, sh.HashKeyRange.EndingHashKey} {
			out, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: aws.String("k"), ExplicitHashKey: hash, Data: []byte("x")})
			w.must(err)
			same(w, "shard of "+*hash, *out.ShardId, *sh.ShardId)
		}
	}
	_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: aws.String("k"), Data: []byte("x"), ExplicitHashKey: aws.String("340282366920938463463374607431768211456")})
	refused(w, err, "InvalidArgumentException")
}

func iteratesEnds(w caller) {
	name := w.stream(1)
	w.put(name, "a")
	oldest := w.horizon(name, shard0)
	latest := w.iterator(name, shard0, types.ShardIteratorTypeLatest, "", time.Time{})
	w.put(name, "b")
	same(w, "from the horizon", texts(w.get(oldest, 0)), "a b")
	page := w.get(latest, 0)
	same(w, "from the tip", texts(page), "b")
	page = w.get(*page.NextShardIterator, 0)
	same(w, "at the tip", texts(page), "")
	same(w, "lag at the tip", *page.MillisBehindLatest, 0)
	w.put(name, "c")
	same(w, "after an empty page", texts(w.get(*page.NextShardIterator, 0)), "c")
}

func iteratesSequence(w caller) {
	name := w.stream(1)
	n := w.put(name, "a", "b", "c")
	at := types.ShardIteratorTypeAtSequenceNumber
	after := types.ShardIteratorTypeAfterSequenceNumber
	same(w, "at b", texts(w.get(w.iterator(name, shard0, at, n[1], time.Time{}), 0)), "b c")
	same(w, "after b", texts(w.get(w.iterator(name, shard0, after, n[1], time.Time{}), 0)), "c")
	same(w, "after c", texts(w.get(w.iterator(name, shard0, after, n[2], time.Time{}), 0)), "")
	start := *w.shards(name)[0].SequenceNumberRange.StartingSequenceNumber
	same(w, "at the shard's start", texts(w.get(w.iterator(name, shard0, at, start, time.Time{}), 0)), "a b c")
	_, err := w.api.GetShardIterator(w.ctx, iteratorInput(name, shard0, at, "", time.Time{}))
	if err == nil {
		w.Error("an iterator at no sequence number was made")
	}
}

func iteratesTimestamp(w caller) {
	name := w.stream(1)
	w.put(name, "a", "b")
	all := w.get(w.horizon(name, shard0), 0)
	first, second := *all.Records[0].ApproximateArrivalTimestamp, *all.Records[1].ApproximateArrivalTimestamp
	at := func(t time.Time) string {
		return texts(w.get(w.iterator(name, shard0, types.ShardIteratorTypeAtTimestamp, "", t), 0))
	}
	same(w, "before the first", at(first.Add(-time.Hour)), "a b")
	same(w, "at the first", at(first), "a b")
	if second.After(first) {
		same(w, "at the second", at(second), "b")
	}
	_, err := w.api.GetShardIterator(w.ctx, iteratorInput(name, shard0, types.ShardIteratorTypeAtTimestamp, "", time.Now().Add(time.Hour)))
	refused(w, err, "InvalidArgumentException")
}

func iteratorTwice(w caller) {
	name := w.stream(1)
	w.put(name, "a", "b")
	it := w.horizon(name, shard0)
	same(w, "first", texts(w.get(it, 0)), "a b")
	same(w, "second", texts(w.get(it, 0)), "a b")
}

func iteratorGarbage(w caller) {
	name := w.stream(1)
	w.put(name, "a")
	it := w.horizon(name, shard0)
	for _, bad := range []string{"x", strings.Repeat("A", 224), it[:len(it)-8]} {
		_, err := w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{ShardIterator: &bad})
		refused(w, err, "InvalidArgumentException")
	}
}

func foreignSequence(w caller) {
	a, b := w.stream(1), w.stream(2)
	n := w.put(a, "x")[0]
	at := types.ShardIteratorTypeAtSequenceNumber
	for _, bad := range []string{"1", strings.Repeat("9", 56)} {
		_, err := w.api.GetShardIterator(w.ctx, iteratorInput(a, shard0, at, bad, time.Time{}))
		refused(w, err, "InvalidArgumentException")
	}
	_, err := w.api.GetShardIterator(w.ctx, iteratorInput(a, shard0, at, "abc", time.Time{}))
	refused(w, err, "ValidationException")
	_, err = w.api.GetShardIterator(w.ctx, iteratorInput(b, "shardId-000000000001", at, n, time.Time{}))
	refused(w, err, "InvalidArgumentException")
}

func pagesRecords(w caller) {
	name := w.stream(1)
	w.put(name, "a", "b", "c", "d", "e")
	var got []string
	it := w.horizon(name, shard0)
	for range 3 {
		page := w.get(it, 2)
		got = append(got, texts(page))
		it = *page.NextShardIterator
	}
	same(w, "pages", strings.Join(got, "|"), "a b|c d|e")
	_, err := w.api.GetRecords(w.ctx, &kinesis.GetRecordsInput{ShardIterator: &it, Limit: aws.Int32(10001)})
	if err == nil {
		w.Error("a Limit of 10001 was taken")
	}
}

func lagToTip(w caller) {
	name := w.stream(1)
	w.put(name, "a", "b", "c")
	first := *w.get(w.horizon(name, shard0), 1).Records[0].ApproximateArrivalTimestamp
	for time.Since(first) < 50*time.Millisecond { // the lag is to be more than a millisecond
		w.get(w.horizon(name, shard0), 1)
	}
	page := w.get(w.horizon(name, shard0), 1)
	if lag := *page.MillisBehindLatest; lag < 1 || lag > 60000 {
		w.Errorf("lag is %d ms with two records to go", lag)
	}
	page = w.get(*page.NextShardIterator, 0)
	same(w, "lag after the last record", *page.MillisBehindLatest, 0)
}

func limitsPage(w caller) {
	name := w.stream(1)
	for range 12 {
		_, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: aws.String("k"), Data: make([]byte, 1<<20-1)})
		w.must(err)
	}
	page := w.get(w.horizon(name, shard0), 0)
	same(w, "records of 1 MiB in the first page", len(page.Records), 10)
	page = w.get(*page.NextShardIterator, 0)
	same(w, "records of 1 MiB in the second page", len(page.Records), 2)
}
