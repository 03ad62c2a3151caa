package kinesis

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// List prices of us-east-1 in US dollars, of 2026. They differ by region.
// Source: aws.amazon.com/kinesis/data-streams/pricing
const (
	consumerShardHour = 0.015 // provisioned streams, for each consumer and shard
	provisionedGB     = 0.013 // read by fan-out
	onDemandGB        = 0.05  // the same; on-demand streams have no hourly price of fan-out
	hoursPerMonth     = 730
)

// Consumers that a stream may have. Source: RegisterStreamConsumer.
const (
	consumerLimit          = 20
	consumerLimitAdvantage = 50 // on-demand streams of accounts with On-demand Advantage
)

// FanOutQuota is what reading one stream by fan-out takes, before it is read.
type FanOutQuota struct {
	Stream     string // name
	Consumer   string // name that would be registered, or the ARN that is named
	Registered bool   // it is there already
	Consumers  int    // registered with the stream by anybody, ours included; 0 for a named ARN
	Limit      int    // how many the stream may have; 0 for a named ARN
	Shards     int    // open ones
	OnDemand   bool
}

// FanOutQuotas looks at every stream of the source: what fan-out would cost, and
// whether a consumer can be registered or is there. It changes nothing. It needs
// kinesis:ListStreamConsumers, or kinesis:DescribeStreamConsumer for consumers that
// are named by ARN.
func (s *Source) FanOutQuotas(ctx context.Context) ([]FanOutQuota, error) {
	streams, err := s.resolve(ctx)
	if err != nil {
		return nil, err
	}
	var out []FanOutQuota
	for _, st := range streams {
		q, err := s.quota(ctx, st)
		if err != nil {
			return nil, fmt.Errorf("look at the consumers of stream %s: %w", st.name, err)
		}
		out = append(out, q)
	}
	return out, nil
}

func (s *Source) quota(ctx context.Context, st *stream) (FanOutQuota, error) {
	q := FanOutQuota{Stream: st.name, Consumer: s.opts.ConsumerName}
	answer, err := s.opts.Client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamARN: &st.arn})
	if err != nil {
		return q, err
	}
	d := answer.StreamDescriptionSummary
	q.Shards = int(aws.ToInt32(d.OpenShardCount))
	q.OnDemand = d.StreamModeDetails != nil && d.StreamModeDetails.StreamMode == types.StreamModeOnDemand
	if arn := s.namedConsumer(st); arn != "" {
		q.Consumer = arn
		answer, err := s.opts.Client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{ConsumerARN: &arn})
		if err != nil {
			return q, err
		}
		q.Registered = answer.ConsumerDescription.ConsumerStatus == types.ConsumerStatusActive
		return q, nil
	}
	q.Limit = consumerLimit
	if q.OnDemand && s.hasAdvantage(ctx) {
		q.Limit = consumerLimitAdvantage
	}
	pages := kinesis.NewListStreamConsumersPaginator(s.opts.Client, &kinesis.ListStreamConsumersInput{StreamARN: &st.arn})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return q, err
		}
		q.Consumers += len(page.Consumers)
		q.Registered = q.Registered || slices.ContainsFunc(page.Consumers, func(c types.Consumer) bool { return aws.ToString(c.ConsumerName) == q.Consumer })
	}
	return q, nil
}

// hasAdvantage reports whether the account has On-demand Advantage. Who may not ask,
// or asks an endpoint that does not know, goes by the limit of the others.
func (s *Source) hasAdvantage(ctx context.Context) bool {
	answer, err := s.opts.Client.DescribeAccountSettings(ctx, &kinesis.DescribeAccountSettingsInput{}, noRetry)
	if err != nil || answer.MinimumThroughputBillingCommitment == nil {
		return false
	}
	return answer.MinimumThroughputBillingCommitment.Status == types.MinimumThroughputBillingCommitmentOutputStatusEnabled
}

// Err says what stands in the way of fan-out, and what to do; nil when nothing does.
func (q FanOutQuota) Err() error {
	switch {
	case q.Registered:
		return nil
	case q.Limit == 0:
		return fmt.Errorf("stream %s: consumer %s is not ACTIVE", q.Stream, q.Consumer)
	case q.Consumers >= q.Limit:
		return fmt.Errorf("stream %s has %d of the %d consumers that it may have, and %s is none of them: deregister one, ask AWS for more, or read with consumer: shared", q.Stream, q.Consumers, q.Limit, q.Consumer)
	}
	return nil
}

// String is one line for people, with the price.
func (q FanOutQuota) String() string {
	consumer := fmt.Sprintf("%s would be consumer %d of %d", q.Consumer, q.Consumers+1, q.Limit)
	switch {
	case q.Limit == 0:
		consumer = "by " + q.Consumer
	case q.Registered:
		consumer = fmt.Sprintf("%s is one of %d consumers, at most %d", q.Consumer, q.Consumers, q.Limit)
	}
	price := fmt.Sprintf("$%.3f per GB read", onDemandGB)
	if !q.OnDemand {
		price = fmt.Sprintf("%d shard(s) x $%.3f an hour = $%.2f a month, and $%.3f per GB read", q.Shards, consumerShardHour, float64(q.Shards)*consumerShardHour*hoursPerMonth, provisionedGB)
	}
	return fmt.Sprintf("%s: %s; fan-out costs %s (us-east-1 list price)", q.Stream, consumer, price)
}
