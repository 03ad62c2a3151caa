package kinesistest

import "fmt"

// PutRecords: docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html
//
// 1 to 500 records and 10 MiB a request, routed as PutRecord does. A record that a
// shard throttles has an ErrorCode in its entry, the others are stored;
// FailedRecordCount counts. A record that is invalid fails the whole request.
type putRecordsInput struct {
	streamRef
	Records []putEntry
}

type putRecordsOutput struct {
	FailedRecordCount int
	Records           []putResult
}

type putResult struct {
	SequenceNumber string `json:",omitempty"`
	ShardId        string `json:",omitempty"`
	ErrorCode      string `json:",omitempty"`
	ErrorMessage   string `json:",omitempty"`
}

func (s *Server) putRecords(q *request, in *putRecordsInput) (putRecordsOutput, error) {
	var out putRecordsOutput
	n := int64(len(in.Records))
	if _, err := within("records.length", &n, 1, maxPutRecords, 0); err != nil {
		return out, err
	}
	st, err := s.findData(in.streamRef, q.now)
	if err != nil {
		return out, err
	}
	defer st.mu.Unlock()
	hashes := make([]hashKey, len(in.Records))
	total := 0
	for i := range in.Records {
		if hashes[i], err = in.Records[i].check(st); err != nil {
			return out, err
		}
		total += in.Records[i].size()
	}
	if total > maxPutBytes {
		return out, invalid("Records size exceeds %d bytes: it is %d.", maxPutBytes, total)
	}
	out.Records = make([]putResult, len(in.Records))
	for i, e := range in.Records {
		sh := st.route(hashes[i])
		if i < q.do.failPuts || !s.opts.NoLimits && !sh.writes.allow(q.now, e.size()) {
			out.FailedRecordCount++
			out.Records[i] = putResult{
				ErrorCode:    "ProvisionedThroughputExceededException",
				ErrorMessage: fmt.Sprintf("Rate exceeded for shard %s in stream %s under account %s.", sh.id(), st.name, s.opts.AccountID),
			}
			continue
		}
		out.Records[i] = putResult{ShardId: sh.id(), SequenceNumber: st.put(sh, *e.PartitionKey, *e.Data, q.now).String()}
	}
	q.Records = len(in.Records) - out.FailedRecordCount
	return out, nil
}
