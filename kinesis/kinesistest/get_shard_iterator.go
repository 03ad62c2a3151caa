package kinesistest

import "time"

// GetShardIterator: docs.aws.amazon.com/kinesis/latest/APIReference/API_GetShardIterator.html
//
// An iterator is an opaque text, good for five minutes and any number of calls.
// AT_ and AFTER_SEQUENCE_NUMBER take a number of this shard, between its start and
// its tip or its ending number; one that was trimmed stands for the horizon, one
// of another shard or of a deleted stream is InvalidArgumentException. So is an
// AT_TIMESTAMP in the future; one before the horizon stands for it.
type getShardIteratorInput struct {
	streamRef
	ShardId                *string
	ShardIteratorType      *string
	StartingSequenceNumber *string
	Timestamp              *instant
}

type getShardIteratorOutput struct{ ShardIterator string }

func (in *getShardIteratorInput) target() (stream, shard string) {
	stream, _ = in.streamRef.target()
	if in.ShardId != nil {
		shard = *in.ShardId
	}
	return stream, shard
}

func (s *Server) getShardIterator(q *request, in *getShardIteratorInput) (getShardIteratorOutput, error) {
	var out getShardIteratorOutput
	switch {
	case in.ShardId == nil:
		return out, required("shardId")
	case in.ShardIteratorType == nil:
		return out, required("shardIteratorType")
	}
	st, err := s.findData(in.streamRef, q.now)
	if err != nil {
		return out, err
	}
	defer st.mu.Unlock()
	sh, err := st.shard(*in.ShardId, q.now)
	if err != nil {
		return out, err
	}
	st.trim(sh, q.now)
	counter, err := in.counter(st, sh, q.now)
	if err != nil {
		return out, err
	}
	out.ShardIterator = s.sealIterator(iterator{st.uid, sh.index, counter, q.now.UnixMilli(), st.name})
	return out, nil
}

// counter is that of the first record to return.
func (in *getShardIteratorInput) counter(st *stream, sh *shard, now time.Time) (uint64, error) {
	switch kind := *in.ShardIteratorType; kind {
	case "TRIM_HORIZON":
		return sh.records.oldest, nil
	case "LATEST":
		return sh.records.next, nil
	case "AT_TIMESTAMP":
		if in.Timestamp == nil {
			return 0, invalid("Must specify timestamp parameter for iterator of type AT_TIMESTAMP.")
		}
		if time.Time(*in.Timestamp).After(now) {
			return 0, invalid("The timestampInMillis parameter cannot be greater than the currentTimestampInMillis.")
		}
		return sh.records.since(time.Time(*in.Timestamp).UnixMilli()), nil
	case "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER":
		if in.StartingSequenceNumber == nil {
			return 0, invalid("Must specify sequence number for iterator of type %s.", kind)
		}
		if err := decimal("startingSequenceNumber", *in.StartingSequenceNumber, 129); err != nil {
			return 0, err
		}
		return sh.locate(st, *in.StartingSequenceNumber, kind == "AFTER_SEQUENCE_NUMBER")
	default:
		return 0, validation("Value '%s' at 'shardIteratorType' failed to satisfy constraint: Member must satisfy enum value set: [AFTER_SEQUENCE_NUMBER, LATEST, AT_TIMESTAMP, AT_SEQUENCE_NUMBER, TRIM_HORIZON]", kind)
	}
}

// locate finds the first record at or after a sequence number of the shard.
func (sh *shard) locate(st *stream, text string, after bool) (uint64, error) {
	q, ok := parseSequence(text)
	if !ok {
		return 0, invalid("StartingSequenceNumber %s used in GetShardIterator on shard %s in stream %s is invalid.", text, sh.id(), st.name)
	}
	if !sh.closed.IsZero() && q == sh.end {
		return sh.records.next, nil
	}
	if q.created() != sh.created || q.index() != sh.index || q.counter() >= sh.records.next {
		return 0, invalid("StartingSequenceNumber %s used in GetShardIterator on shard %s in stream %s is invalid because it did not come from this shard.", text, sh.id(), st.name)
	}
	c := q.counter()
	if rec, ok := sh.records.at(c); ok && c >= sh.records.oldest {
		if have, _ := parseSequence(rec.SequenceNumber); have.less(q) || after && have == q {
			c++
		}
	}
	return max(c, sh.records.oldest), nil
}
