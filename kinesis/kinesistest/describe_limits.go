package kinesistest

// DescribeLimits: docs.aws.amazon.com/kinesis/latest/APIReference/API_DescribeLimits.html
//
// Open shards and on-demand streams of the account, and how many it may have.
type describeLimitsInput struct{}

type describeLimitsOutput struct {
	ShardLimit               int
	OpenShardCount           int
	OnDemandStreamCount      int
	OnDemandStreamCountLimit int
}

func (s *Server) describeLimits(q *request, _ *describeLimitsInput) (describeLimitsOutput, error) {
	out := describeLimitsOutput{ShardLimit: s.opts.ShardLimit, OnDemandStreamCountLimit: 50}
	for _, st := range s.all(q.now) {
		out.OpenShardCount += len(st.open)
		if st.mode == onDemand {
			out.OnDemandStreamCount++
		}
		st.mu.Unlock()
	}
	return out, nil
}
