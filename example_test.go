package kinetl_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease"
)

// A stream of JSON records is read to its tip, into a table in memory. With AWS the
// client comes from the SDK's configuration, the leases from sqlitelease.Open, and
// the destination from duckdb.New.
func ExamplePipeline() {
	server, err := kinesistest.Start(kinesistest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := server.CreateStream("orders", 1); err != nil {
		fmt.Println(err)
		return
	}
	for _, order := range []string{`{"order":1,"total":9.5}`, `{"order":9007199254740993,"total":0.1}`, `{"order":`} {
		if _, _, err := server.Put("orders", "customer", []byte(order)); err != nil {
			fmt.Println(err)
			return
		}
	}
	client := clientOf(server)
	destination := desttest.NewMemory(desttest.MemoryOptions{})
	pipeline := &kinetl.Pipeline{
		Consumer: kinetl.Consumer{
			Source: kinesis.NewSource(kinesis.Options{Client: client, Streams: []string{"orders"}}),
			Leases: &lease.Memory{},
			Config: kinetl.ConsumerConfig{Worker: "example-1", Once: true},
		},
		NewDecoder:  codec.NewJSON,
		Destination: destination,
	}
	if err := pipeline.Run(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	table := destination.Read("orders")
	for _, row := range table.Rows {
		fmt.Println("order", row.Cells["order"], "total", row.Cells["total"])
	}
	for _, dead := range table.DeadLetters {
		fmt.Printf("dead letter %s\n", dead.Payload)
	}
	// Output:
	// order 1 total 9.5
	// order 9007199254740993 total 0.1
	// dead letter {"order":
}

// clientOf is a client of a server in this process. With AWS it comes from the SDK's
// configuration.
func clientOf(server *kinesistest.Server) *awskinesis.Client {
	return awskinesis.New(awskinesis.Options{Region: "us-east-1", BaseEndpoint: aws.String(server.URL()),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
		})})
}

// A program of one's own reads two streams and says itself when records are done: here
// once a page has been written. Writing fails at first; the page then comes again.
func ExampleConsumer_Handle() {
	server, err := kinesistest.Start(kinesistest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	for stream, texts := range map[string][]string{"orders": {"one", "two", "three"}, "payments": {"four"}} {
		if err := server.CreateStream(stream, 1); err != nil {
			fmt.Println(err)
			return
		}
		for _, text := range texts {
			if _, _, err := server.Put(stream, "customer", []byte(text)); err != nil {
				fmt.Println(err)
				return
			}
		}
	}

	var mu sync.Mutex
	written := map[string][]string{}
	failures := 1
	write := func(stream string, records []kinetl.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if failures > 0 {
			failures--
			return errors.New("the disk is full")
		}
		for _, r := range records {
			written[stream] = append(written[stream], string(r.Data))
		}
		return nil
	}

	consumer := &kinetl.Consumer{
		Source: kinesis.NewSource(kinesis.Options{Client: clientOf(server), Streams: []string{"orders", "payments"}}),
		Leases: &lease.Memory{},
		Config: kinetl.ConsumerConfig{Worker: "example-1", Once: true},
	}
	err = consumer.Handle(context.Background(), func(ctx context.Context, shard *kinetl.Shard, records []kinetl.Record) error {
		if len(records) == 0 {
			return nil // the shard is finished, and nothing is held back
		}
		if err := write(shard.Info.ID.StreamName(), records); err != nil {
			return err
		}
		shard.Checkpoint(records[len(records)-1].Position(), lease.Sink{})
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, stream := range slices.Sorted(maps.Keys(written)) {
		fmt.Println(stream+":", strings.Join(written[stream], " "))
	}
	// Output:
	// orders: one two three
	// payments: four
}

// A handler that gathers records of several pages checkpoints those that it has stored
// and no others: a worker that goes on after it begins with the rest.
func ExampleShard_Checkpoint() {
	server, err := kinesistest.Start(kinesistest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := server.CreateStream("orders", 1); err != nil {
		fmt.Println(err)
		return
	}
	for n := range 5 {
		if _, _, err := server.Put("orders", "customer", fmt.Append(nil, "order ", n)); err != nil {
			fmt.Println(err)
			return
		}
	}
	source, leases := kinesis.NewSource(kinesis.Options{Client: clientOf(server), Streams: []string{"orders"}}), &lease.Memory{}

	// The first worker stores two at a time, and stops after four.
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var open []kinetl.Record
	first := &kinetl.Consumer{Source: source, Leases: leases, Config: kinetl.ConsumerConfig{Worker: "example-1"}}
	err = first.Handle(ctx, func(_ context.Context, shard *kinetl.Shard, records []kinetl.Record) error {
		for _, r := range records {
			if open = append(open, r); len(open) == 2 {
				fmt.Printf("stored %s and %s\n", open[0].Data, open[1].Data)
				shard.Checkpoint(open[1].Position(), lease.Sink{})
				open = nil
			}
		}
		if len(open) > 0 {
			stop()
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	second := &kinetl.Consumer{Source: source, Leases: leases, Config: kinetl.ConsumerConfig{Worker: "example-2", Once: true}}
	err = second.Handle(context.Background(), func(_ context.Context, shard *kinetl.Shard, records []kinetl.Record) error {
		for _, r := range records {
			fmt.Printf("then %s\n", r.Data)
			shard.Checkpoint(r.Position(), lease.Sink{})
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// stored order 0 and order 1
	// stored order 2 and order 3
	// then order 4
}
