package kinesistest

import "time"

// DescribeStreamSummary: docs.aws.amazon.com/kinesis/latest/APIReference/API_DescribeStreamSummary.html
//
// The stream without its shards.
type describeStreamSummaryInput struct{ streamRef }

type describeStreamSummaryOutput struct {
	StreamDescriptionSummary streamDescriptionSummary
}

type streamDescriptionSummary struct {
	StreamName              string
	StreamARN               string
	StreamStatus            string
	StreamModeDetails       streamMode
	StreamCreationTimestamp instant
	RetentionPeriodHours    int
	EncryptionType          string
	EnhancedMonitoring      []enhancedMetrics
	OpenShardCount          int
	ConsumerCount           int
	MaxRecordSizeInKiB      int
}

func (s *Server) describeStreamSummary(q *request, in *describeStreamSummaryInput) (describeStreamSummaryOutput, error) {
	st, err := s.find(in.streamRef, q.now)
	if err != nil {
		return describeStreamSummaryOutput{}, err
	}
	defer st.mu.Unlock()
	return describeStreamSummaryOutput{streamDescriptionSummary{
		StreamName:              st.name,
		StreamARN:               st.arn,
		StreamStatus:            st.status,
		StreamModeDetails:       streamMode{st.mode},
		StreamCreationTimestamp: instant(st.created),
		RetentionPeriodHours:    int(st.retention / time.Hour),
		EncryptionType:          "NONE",
		EnhancedMonitoring:      noMetrics(),
		OpenShardCount:          len(st.open),
		ConsumerCount:           len(st.consumers),
		MaxRecordSizeInKiB:      st.maxRecord >> 10,
	}}, nil
}
