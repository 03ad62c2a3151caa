package kinetl_test

import (
	"context"
	"fmt"

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
	client := awskinesis.New(awskinesis.Options{Region: "us-east-1", BaseEndpoint: aws.String(server.URL()),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
		})})
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
