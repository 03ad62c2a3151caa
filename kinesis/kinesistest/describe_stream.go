package kinesistest

import "time"

// DescribeStream: docs.aws.amazon.com/kinesis/latest/APIReference/API_DescribeStream.html
//
// The stream with its shards, Limit (default 100) from the one after
// ExclusiveStartShardId. Expired shards are left out.
type describeStreamInput struct {
	streamRef
	Limit                 *int64
	ExclusiveStartShardId *string
}

type describeStreamOutput struct {
	StreamDescription streamDescription
}

type streamDescription struct {
	StreamName              string
	StreamARN               string
	StreamStatus            string
	StreamModeDetails       streamMode
	StreamCreationTimestamp instant
	RetentionPeriodHours    int
	EncryptionType          string
	EnhancedMonitoring      []enhancedMetrics
	Shards                  []shardOutput
	HasMoreShards           bool
}

type enhancedMetrics struct{ ShardLevelMetrics []string }

// noMetrics: this server has no shard-level metrics to switch on.
func noMetrics() []enhancedMetrics { return []enhancedMetrics{{ShardLevelMetrics: []string{}}} }

func (s *Server) describeStream(q *request, in *describeStreamInput) (describeStreamOutput, error) {
	limit, err := within("limit", in.Limit, 1, 10000, 100)
	if err != nil {
		return describeStreamOutput{}, err
	}
	st, err := s.find(in.streamRef, q.now)
	if err != nil {
		return describeStreamOutput{}, err
	}
	defer st.mu.Unlock()
	after := ""
	if in.ExclusiveStartShardId != nil {
		after = *in.ExclusiveStartShardId
	}
	shards, more := st.list(after, shardFilter{Type: "FROM_TRIM_HORIZON"}, int(limit), q.now)
	return describeStreamOutput{streamDescription{
		StreamName:              st.name,
		StreamARN:               st.arn,
		StreamStatus:            st.status,
		StreamModeDetails:       streamMode{st.mode},
		StreamCreationTimestamp: instant(st.created),
		RetentionPeriodHours:    int(st.retention / time.Hour),
		EncryptionType:          "NONE",
		EnhancedMonitoring:      noMetrics(),
		Shards:                  shards,
		HasMoreShards:           more,
	}}, nil
}
