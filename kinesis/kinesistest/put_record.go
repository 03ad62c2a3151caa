package kinesistest

import "unicode/utf8"

// PutRecord: docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecord.html
//
// The record goes to the open shard whose range holds ExplicitHashKey, or else the
// MD5 of PartitionKey (1 to 256 characters). Data and key together may be as large
// as the stream's maximum, 1 MiB unless raised. Over 1000 records or 1 MiB a second
// a shard throttles. SequenceNumberForOrdering must be a sequence number; the new
// one is larger than any of its shard, whether asked for or not.
type putRecordInput struct {
	streamRef
	putEntry
	SequenceNumberForOrdering *string
}

type putEntry struct {
	Data            *[]byte
	PartitionKey    *string
	ExplicitHashKey *string
}

type putRecordOutput struct {
	ShardId        string
	SequenceNumber string
}

func (s *Server) putRecord(q *request, in *putRecordInput) (putRecordOutput, error) {
	st, err := s.findData(in.streamRef, q.now)
	if err != nil {
		return putRecordOutput{}, err
	}
	defer st.mu.Unlock()
	hash, err := in.check(st)
	if err != nil {
		return putRecordOutput{}, err
	}
	if n := in.SequenceNumberForOrdering; n != nil {
		if err := decimal("sequenceNumberForOrdering", *n, 129); err != nil {
			return putRecordOutput{}, err
		}
		if _, ok := parseSequence(*n); !ok {
			return putRecordOutput{}, invalid("SequenceNumberForOrdering %s is not a sequence number of stream %s.", *n, st.name)
		}
	}
	sh := st.route(hash)
	if q.do.failPuts > 0 || !s.opts.NoLimits && !sh.writes.allow(q.now, in.size()) {
		return putRecordOutput{}, throttled(st, sh)
	}
	q.Records = 1
	return putRecordOutput{sh.id(), st.put(sh, *in.PartitionKey, *in.Data, q.now).String()}, nil
}

func (e *putEntry) size() int { return len(*e.Data) + len(*e.PartitionKey) }

// check returns where the record belongs.
func (e *putEntry) check(st *stream) (hashKey, error) {
	switch {
	case e.Data == nil:
		return hashKey{}, required("data")
	case e.PartitionKey == nil:
		return hashKey{}, required("partitionKey")
	}
	if n := utf8.RuneCountInString(*e.PartitionKey); n < 1 || n > maxPartitionKey || !utf8.ValidString(*e.PartitionKey) {
		return hashKey{}, validation("Value at 'partitionKey' failed to satisfy constraint: Member must have 1 to %d characters, it has %d", maxPartitionKey, n)
	}
	if e.size() > st.maxRecord {
		return hashKey{}, validation("Value at 'data' failed to satisfy constraint: data and partition key must have %d bytes at most, they have %d", st.maxRecord, e.size())
	}
	if e.ExplicitHashKey == nil {
		return hashOf(*e.PartitionKey), nil
	}
	if err := decimal("explicitHashKey", *e.ExplicitHashKey, 39); err != nil {
		return hashKey{}, err
	}
	k, ok := parseHashKey(*e.ExplicitHashKey)
	if !ok {
		return hashKey{}, invalid("Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. Specified value was %s", *e.ExplicitHashKey)
	}
	return k, nil
}
