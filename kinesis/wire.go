package kinesis

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
)

// wirePage is one answer of GetRecords, as the reader needs it.
type wirePage struct {
	records []kinetl.Record // of the stream: not unpacked
	bytes   int64
	lag     time.Duration
	next    string // iterator; empty: the service says that the shard ends here
	ended   bool   // ChildShards confirm it
}

// getRecords makes one call. It is the one place that decodes GetRecords.
func (s *Source) getRecords(ctx context.Context, iterator string, limit int32) (wirePage, error) {
	answer, err := s.opts.Client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: &iterator, Limit: &limit}, noRetry)
	if err != nil {
		return wirePage{}, err
	}
	page := wirePage{
		records: make([]kinetl.Record, len(answer.Records)),
		lag:     time.Duration(aws.ToInt64(answer.MillisBehindLatest)) * time.Millisecond,
		next:    aws.ToString(answer.NextShardIterator),
		ended:   len(answer.ChildShards) > 0,
	}
	for i, r := range answer.Records {
		page.records[i] = kinetl.Record{
			Sequence: aws.ToString(r.SequenceNumber), PartitionKey: aws.ToString(r.PartitionKey),
			Arrived: aws.ToTime(r.ApproximateArrivalTimestamp).UTC(), Data: r.Data,
		}
		page.bytes += int64(len(r.Data) + len(page.records[i].PartitionKey))
	}
	return page, nil
}

// noRetry leaves repeating to the reader. The SDK's retries of one client draw on
// a common quota: one throttled shard would use up the retries of all others.
func noRetry(o *kinesis.Options) { o.Retryer = aws.NopRetryer{} }
