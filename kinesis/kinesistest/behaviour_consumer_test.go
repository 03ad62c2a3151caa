package kinesistest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/schemas"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go/transport/http/protocol/awsjson"
)

func consumerBehaviours() []behaviour {
	return []behaviour{
		{"a consumer is registered, described and listed", ours | kinesisLocal, describesConsumer},
		{"a consumer's name is used once in a stream", ours | kinesisLocal, consumerNameInUse},
		{"a consumer that is not there is not found", ours | kinesisLocal, consumerNotFound},
		{"a consumer is deregistered by name", ours | kinesisLocal, deregistersConsumer},
		{"a consumer is deregistered by ARN", ours | kinesisLocal, deregistersByARN},
		{"consumers are listed in pages", ours, pagesConsumers},
		{"a stream has 20 consumers", ours | kinesisLocal, limitsConsumers},
		{"a stream with consumers is deleted when that is asked for", ours, deletesWithConsumers},

		{"a subscription begins where it is asked to", ours | kinesisLocal, subscribesAt},
		{"records come while they are put", ours | kinesisLocal, subscribesLive},
		{"a subscription goes on after its continuation number", ours | kinesisLocal, continues},
		{"an idle subscription moves on too", ours | kinesisLocal, continuesIdle},
		{"an event is behind until the tip", ours | kinesisLocal, behindToTip},
		{"a second subscription within 5 s is refused", ours, refusesSecond},
		{"the end of a closed shard names its children", ours, endsSubscription},
		{"a shard or consumer that is not there has no subscription", ours, subscribesToNothing},
	}
}

// initialResponse puts the frame in front of an event stream that kinesis-local
// 0.6.2 leaves out, and for which the SDK waits.
type initialResponse struct{ http.RoundTripper }

func (t initialResponse) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SubscribeToShard") {
		return resp, err
	}
	m := eventstream.Message{Payload: []byte("{}")}
	m.Headers.Set(":message-type", eventstream.StringValue("event"))
	m.Headers.Set(":event-type", eventstream.StringValue("initial-response"))
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&b, resp.Body), resp.Body}
	return resp, nil
}

// consumer registers a consumer and waits until it is ACTIVE.
func (w caller) consumer(stream, name string) (arn string) {
	w.Helper()
	streamARN := w.active(stream).StreamARN
	out, err := w.api.RegisterStreamConsumer(w.ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: streamARN, ConsumerName: &name})
	w.must(err)
	same(w, "status", out.Consumer.ConsumerStatus, types.ConsumerStatusCreating)
	deadline := time.Now().Add(10 * time.Second)
	for {
		d, err := w.api.DescribeStreamConsumer(w.ctx, &kinesis.DescribeStreamConsumerInput{StreamARN: streamARN, ConsumerName: &name})
		w.must(err)
		if d.ConsumerDescription.ConsumerStatus == types.ConsumerStatusActive {
			return *out.Consumer.ConsumerARN
		}
		if time.Now().After(deadline) {
			w.Fatalf("consumer %s stays %s", name, d.ConsumerDescription.ConsumerStatus)
		}
	}
}

// ownCodec keeps subscriptions of one client from racing for its codec (smithy-go#714).
func ownCodec(o *kinesis.Options) { o.Protocol = awsjson.New11(schemas.Kinesis_20131202) }

// subscribe opens a subscription that ends with the case.
func (w caller) subscribe(consumer, shard string, at types.StartingPosition) *kinesis.SubscribeToShardEventStream {
	w.Helper()
	out, err := w.api.SubscribeToShard(w.ctx, &kinesis.SubscribeToShardInput{ConsumerARN: &consumer, ShardId: &shard, StartingPosition: &at}, ownCodec)
	w.must(err)
	w.Cleanup(func() { out.GetStream().Close() })
	return out.GetStream()
}

// event is the next event.
func (w caller) event(s *kinesis.SubscribeToShardEventStream) types.SubscribeToShardEvent {
	w.Helper()
	select {
	case ev, ok := <-s.Events():
		if !ok {
			w.Fatalf("the subscription ended: %v", s.Err())
		}
		return ev.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
	case <-time.After(20 * time.Second):
		w.Fatal("no event in 20 s")
	}
	panic("not reached")
}

// await reads events until a record has the text, and joins the texts of all.
func (w caller) await(s *kinesis.SubscribeToShardEventStream, last string) (texts string, ev types.SubscribeToShardEvent) {
	w.Helper()
	var all []string
	for {
		ev = w.event(s)
		for _, r := range ev.Records {
			all = append(all, string(r.Data))
		}
		if len(all) > 0 && all[len(all)-1] == last {
			return strings.Join(all, " "), ev
		}
	}
}

var trimHorizon = types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}

func describesConsumer(w caller) {
	name := w.stream(1)
	before := time.Now()
	arn := w.consumer(name, "app")
	streamARN := w.active(name).StreamARN
	if ok, _ := regexp.MatchString("^"+*streamARN+`/consumer/app:\d{10}$`, arn); !ok {
		w.Errorf("got ARN %s", arn)
	}
	d, err := w.api.DescribeStreamConsumer(w.ctx, &kinesis.DescribeStreamConsumerInput{ConsumerARN: &arn})
	w.must(err)
	c := d.ConsumerDescription
	same(w, "by ARN", fmt.Sprint(*c.ConsumerARN, *c.ConsumerName, *c.StreamARN, c.ConsumerStatus), fmt.Sprint(arn, "app", *streamARN, "ACTIVE"))
	if age := c.ConsumerCreationTimestamp.Sub(before); age < -2*time.Second || age > 10*time.Second {
		w.Errorf("created at %v, which is not now", c.ConsumerCreationTimestamp)
	}
	list, err := w.api.ListStreamConsumers(w.ctx, &kinesis.ListStreamConsumersInput{StreamARN: streamARN})
	w.must(err)
	if len(list.Consumers) != 1 || *list.Consumers[0].ConsumerARN != arn || list.Consumers[0].ConsumerStatus != types.ConsumerStatusActive {
		w.Errorf("listed %+v", list.Consumers)
	}
	sum, err := w.api.DescribeStreamSummary(w.ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &name})
	w.must(err)
	same(w, "consumers in the summary", aws.ToInt32(sum.StreamDescriptionSummary.ConsumerCount), 1)
}

func consumerNameInUse(w caller) {
	name, other := w.stream(1), w.stream(1)
	w.consumer(name, "app")
	_, err := w.api.RegisterStreamConsumer(w.ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: w.active(name).StreamARN, ConsumerName: aws.String("app")})
	refused(w, err, "ResourceInUseException")
	w.consumer(other, "app")
}

func consumerNotFound(w caller) {
	name := w.stream(1)
	arn := *w.active(name).StreamARN
	none, app := aws.String(arn+"/consumer/app:1700000000"), aws.String("app")
	_, err := w.api.DescribeStreamConsumer(w.ctx, &kinesis.DescribeStreamConsumerInput{StreamARN: &arn, ConsumerName: app})
	refused(w, err, "ResourceNotFoundException")
	_, err = w.api.DescribeStreamConsumer(w.ctx, &kinesis.DescribeStreamConsumerInput{ConsumerARN: none})
	refused(w, err, "ResourceNotFoundException")
	_, err = w.api.DeregisterStreamConsumer(w.ctx, &kinesis.DeregisterStreamConsumerInput{ConsumerARN: none})
	refused(w, err, "ResourceNotFoundException")
	_, err = w.api.RegisterStreamConsumer(w.ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: aws.String(arn + "x"), ConsumerName: app})
	refused(w, err, "ResourceNotFoundException")
}

func deregistersConsumer(w caller) {
	name := w.stream(1)
	streamARN := w.active(name).StreamARN
	// kinesis-local never ends one whose name another stream's consumer has.
	before := w.consumer(name, name)
	w.deregister(name, &kinesis.DeregisterStreamConsumerInput{StreamARN: streamARN, ConsumerName: &name})
	if again := w.consumer(name, name); again < before || len(again) != len(before) {
		w.Errorf("registered again it has ARN %s, before %s", again, before)
	}
}

func deregistersByARN(w caller) {
	name := w.stream(1)
	arn := w.consumer(name, name)
	w.deregister(name, &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn})
}

// deregister removes a stream's only consumer and waits until it is gone.
func (w caller) deregister(stream string, in *kinesis.DeregisterStreamConsumerInput) {
	w.Helper()
	_, err := w.api.DeregisterStreamConsumer(w.ctx, in)
	w.must(err)
	for deadline := time.Now().Add(10 * time.Second); ; {
		list, err := w.api.ListStreamConsumers(w.ctx, &kinesis.ListStreamConsumersInput{StreamARN: w.active(stream).StreamARN})
		w.must(err)
		if len(list.Consumers) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("consumer %s stays %s", *list.Consumers[0].ConsumerName, list.Consumers[0].ConsumerStatus)
		}
	}
}

func pagesConsumers(w caller) {
	name := w.stream(1)
	for _, c := range []string{"c", "a", "b"} {
		w.consumer(name, c)
	}
	in := &kinesis.ListStreamConsumersInput{StreamARN: w.active(name).StreamARN, MaxResults: aws.Int32(2)}
	var pages []string
	for {
		out, err := w.api.ListStreamConsumers(w.ctx, in)
		w.must(err)
		var names []string
		for _, c := range out.Consumers {
			names = append(names, *c.ConsumerName)
		}
		pages = append(pages, strings.Join(names, " "))
		if out.NextToken == nil {
			break
		}
		in.NextToken = out.NextToken
	}
	same(w, "pages", strings.Join(pages, "|"), "a b|c")
}

func limitsConsumers(w caller) {
	name := w.stream(1)
	for i := range 20 {
		w.consumer(name, fmt.Sprint("app-", i))
	}
	_, err := w.api.RegisterStreamConsumer(w.ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: w.active(name).StreamARN, ConsumerName: aws.String("app")})
	refused(w, err, "LimitExceededException")
}

func deletesWithConsumers(w caller) {
	name := w.stream(1)
	w.consumer(name, "app")
	_, err := w.api.DeleteStream(w.ctx, &kinesis.DeleteStreamInput{StreamName: &name})
	refused(w, err, "ResourceInUseException")
	_, err = w.api.DeleteStream(w.ctx, &kinesis.DeleteStreamInput{StreamName: &name, EnforceConsumerDeletion: aws.Bool(true)})
	w.must(err)
}

func subscribesAt(w caller) {
	name := w.stream(1)
	seqs := w.put(name, "a", "b")
	var arrived time.Time
	for {
		page := w.get(w.horizon(name, shard0), 0)
		arrived = *page.Records[1].ApproximateArrivalTimestamp
		if time.Since(arrived) > 5*time.Millisecond {
			break
		}
	}
	seqs = append(seqs, w.put(name, "c")...)
	for i, c := range []struct {
		at   types.StartingPosition
		want string
	}{
		{trimHorizon, "a b c d"},
		{types.StartingPosition{Type: types.ShardIteratorTypeAtSequenceNumber, SequenceNumber: &seqs[1]}, "b c d"},
		{types.StartingPosition{Type: types.ShardIteratorTypeAfterSequenceNumber, SequenceNumber: &seqs[1]}, "c d"},
		{types.StartingPosition{Type: types.ShardIteratorTypeAtTimestamp, Timestamp: aws.Time(arrived.Add(time.Millisecond))}, "c d"},
		{types.StartingPosition{Type: types.ShardIteratorTypeLatest}, "d"},
	} {
		s := w.subscribe(w.consumer(name, fmt.Sprint("app-", i)), shard0, c.at)
		if i == 4 {
			w.event(s) // LATEST is where the shard is by now
		}
		if i == 0 {
			defer func() {
				got, _ := w.await(s, "d")
				same(w, "TRIM_HORIZON", got, c.want)
			}()
			continue
		}
		if i == 4 {
			w.put(name, "d")
		}
		defer func() {
			got, _ := w.await(s, "d")
			same(w, string(c.at.Type), got, c.want)
		}()
	}
}

func subscribesLive(w caller) {
	name := w.stream(1)
	s := w.subscribe(w.consumer(name, "app"), shard0, trimHorizon)
	for _, text := range []string{"a", "b", "c"} {
		seq := w.put(name, text)[0]
		got, ev := w.await(s, text)
		same(w, "records", got, text)
		r := ev.Records[len(ev.Records)-1]
		same(w, "sequence number", *r.SequenceNumber, seq)
		same(w, "key", *r.PartitionKey, "k")
		if age := time.Since(*r.ApproximateArrivalTimestamp); age < -2*time.Second || age > time.Minute {
			w.Errorf("arrived %v ago", age)
		}
		if ev.ChildShards != nil {
			w.Errorf("an open shard has children %v", ev.ChildShards)
		}
	}
}

func continues(w caller) {
	name := w.stream(1)
	w.put(name, "a", "b")
	_, ev := w.await(w.subscribe(w.consumer(name, "first"), shard0, trimHorizon), "b")
	w.put(name, "c")
	after := types.StartingPosition{Type: types.ShardIteratorTypeAfterSequenceNumber, SequenceNumber: ev.ContinuationSequenceNumber}
	got, _ := w.await(w.subscribe(w.consumer(name, "second"), shard0, after), "c")
	same(w, "after", got, "c")
	at := after
	at.Type = types.ShardIteratorTypeAtSequenceNumber
	got, _ = w.await(w.subscribe(w.consumer(name, "third"), shard0, at), "c")
	if got != "c" && got != "b c" {
		w.Errorf("at the number: %s", got)
	}
}

func continuesIdle(w caller) {
	name := w.stream(1)
	w.put(name, "a")
	s := w.subscribe(w.consumer(name, "first"), shard0, types.StartingPosition{Type: types.ShardIteratorTypeLatest})
	ev := w.event(s)
	same(w, "records", len(ev.Records), 0)
	if aws.ToString(ev.ContinuationSequenceNumber) == "" {
		w.Fatal("an empty event has no continuation number")
	}
	w.put(name, "b")
	at := types.StartingPosition{Type: types.ShardIteratorTypeAtSequenceNumber, SequenceNumber: ev.ContinuationSequenceNumber}
	got, _ := w.await(w.subscribe(w.consumer(name, "second"), shard0, at), "b")
	if got != "b" && got != "a b" {
		w.Errorf("at the number: %s", got)
	}
}

func behindToTip(w caller) {
	name := w.stream(1)
	w.put(name, "a")
	s := w.subscribe(w.consumer(name, "app"), shard0, trimHorizon)
	_, ev := w.await(s, "a")
	for aws.ToInt64(ev.MillisBehindLatest) > 0 {
		ev = w.event(s)
	}
}

func refusesSecond(w caller) {
	name := w.stream(1)
	arn := w.consumer(name, "app")
	w.event(w.subscribe(arn, shard0, trimHorizon))
	_, err := w.api.SubscribeToShard(w.ctx, &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: aws.String(shard0), StartingPosition: &trimHorizon}, ownCodec)
	refused(w, err, "ResourceInUseException")
}

func endsSubscription(w caller) {
	name := w.stream(1)
	arn := w.consumer(name, "app")
	s := w.subscribe(arn, shard0, trimHorizon)
	w.event(s)
	w.put(name, "a")
	w.splitHalf(name, w.shards(name)[0])
	var all []string
	ev := w.event(s)
	for ; ev.ChildShards == nil; ev = w.event(s) {
		if ev.ContinuationSequenceNumber == nil {
			w.Fatal("an event has neither children nor a continuation number")
		}
		for _, r := range ev.Records {
			all = append(all, string(r.Data))
		}
	}
	for _, r := range ev.Records {
		all = append(all, string(r.Data))
	}
	same(w, "records", strings.Join(all, " "), "a")
	same(w, "continuation number", aws.ToString(ev.ContinuationSequenceNumber), "")
	same(w, "children", fmt.Sprint(len(ev.ChildShards), *ev.ChildShards[0].ShardId, ev.ChildShards[0].ParentShards), "2shardId-000000000001["+shard0+"]")
	if more, ok := <-s.Events(); ok {
		w.Errorf("after the end came %v", more)
	}
	w.must(s.Err())
}

func subscribesToNothing(w caller) {
	name := w.stream(1)
	arn := w.consumer(name, "app")
	for _, in := range []kinesis.SubscribeToShardInput{
		{ConsumerARN: &arn, ShardId: aws.String("shardId-000000000009"), StartingPosition: &trimHorizon},
		{ConsumerARN: aws.String(*w.active(name).StreamARN + "/consumer/app:1700000000"), ShardId: aws.String(shard0), StartingPosition: &trimHorizon},
	} {
		_, err := w.api.SubscribeToShard(w.ctx, &in, ownCodec)
		refused(w, err, "ResourceNotFoundException")
	}
}
