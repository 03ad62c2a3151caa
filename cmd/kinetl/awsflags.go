package main

import (
	"context"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl/awsconf"
)

// awsFlags adds the flags of commands that work on a stream, and returns what they
// will hold once they are parsed.
func awsFlags(cmd *cobra.Command) *awsconf.Settings {
	s := &awsconf.Settings{}
	f := cmd.Flags()
	f.StringVar(&s.Region, "region", "", "AWS region; default: AWS_REGION or the profile's")
	f.StringVar(&s.Endpoint, "endpoint", "", "base URL of another Kinesis than the region's, such as that of kinetl emulator")
	f.StringVar(&s.Profile, "profile", "", "profile of the AWS configuration files")
	return s
}

// kinesisClient makes a client of what the flags say. It calls nothing.
func kinesisClient(ctx context.Context, s *awsconf.Settings) (*awskinesis.Client, error) {
	cfg, err := awsconf.Load(ctx, *s)
	if err != nil {
		return nil, exit(exitDocuments, err)
	}
	return awskinesis.NewFromConfig(cfg), nil
}
