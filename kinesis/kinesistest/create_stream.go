package kinesistest

import "time"

// CreateStream: docs.aws.amazon.com/kinesis/latest/APIReference/API_CreateStream.html
//
// The stream is CREATING and without shards for Options.StreamTransition. A
// provisioned stream has ShardCount shards of equal key ranges, one on demand
// begins with four. A name in use is ResourceInUseException, too many shards
// LimitExceededException. A stream created again is at least a whole second younger
// than its predecessor, since readers tell the two apart by that.
type createStreamInput struct {
	StreamName         *string
	ShardCount         *int64
	StreamModeDetails  *streamMode
	MaxRecordSizeInKiB *int64
	Tags               map[string]string
}

type streamMode struct{ StreamMode string }

const onDemandShards = 4

func (in *createStreamInput) target() (stream, shard string) {
	return (&streamRef{StreamName: in.StreamName}).target()
}

func (s *Server) createStream(q *request, in *createStreamInput) (empty, error) {
	if in.StreamName == nil {
		return empty{}, required("streamName")
	}
	if err := checkName(*in.StreamName); err != nil {
		return empty{}, err
	}
	mode := provisioned
	if in.StreamModeDetails != nil {
		mode = in.StreamModeDetails.StreamMode
	}
	count := int64(onDemandShards)
	var err error
	switch mode {
	case provisioned:
		if in.ShardCount == nil {
			return empty{}, required("shardCount")
		}
		if count, err = within("shardCount", in.ShardCount, 1, 100000, 1); err != nil {
			return empty{}, err
		}
	case onDemand:
		if in.ShardCount != nil {
			return empty{}, validation("Value '%d' at 'shardCount' failed to satisfy constraint: an on-demand stream takes none", *in.ShardCount)
		}
	default:
		return empty{}, validation("Value '%s' at 'streamModeDetails.streamMode' failed to satisfy constraint: Member must satisfy enum value set: [PROVISIONED, ON_DEMAND]", mode)
	}
	maxKiB, err := within("maxRecordSizeInKiB", in.MaxRecordSizeInKiB, defaultRecordBytes>>10, maxRecordBytes>>10, defaultRecordBytes>>10)
	if err != nil {
		return empty{}, err
	}
	if err := s.shardsLeft(int(count), q.now); err != nil {
		return empty{}, err
	}
	return empty{}, s.addStream(*in.StreamName, mode, int(count), int(maxKiB)<<10, in.Tags, q.now)
}

func (s *Server) addStream(name, mode string, shards, maxRecord int, tags map[string]string, now time.Time) error {
	if st, err := s.lookup(name, now); err == nil {
		st.mu.Unlock()
		return refuse("ResourceInUseException", "Stream %s under account %s already exists.", name, s.opts.AccountID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[name] != nil {
		return refuse("ResourceInUseException", "Stream %s under account %s already exists.", name, s.opts.AccountID)
	}
	created, first := now, now.Unix()
	if p, ok := s.past[name]; ok {
		if after := p.created.Truncate(time.Second).Add(time.Second); created.Before(after) {
			created = after
		}
		first = max(created.Unix(), p.last+1)
	}
	s.lastUID++
	st := &stream{
		name: name, arn: s.arn(name), uid: s.lastUID, created: created, firstSecond: first,
		mode: mode, retention: 24 * time.Hour, maxRecord: maxRecord, tags: map[string]string{},
	}
	for k, v := range tags {
		st.tags[k] = v
	}
	s.streams[name] = st
	s.change(st, statusCreating, now, func(at time.Time) {
		for i := range shards {
			high := maxHashKey
			if i+1 < shards {
				high = uniform(i+1, shards).prev()
			}
			st.addShard(uniform(i, shards), high, at)
		}
	})
	return nil
}

// shardsLeft refuses to go over the account's limit.
func (s *Server) shardsLeft(more int, now time.Time) error {
	if have := s.openShards(now); have+more > s.opts.ShardLimit {
		return refuse("LimitExceededException", "This request would exceed the shard limit for the account %s in %s. Current shard count for the account: %d. Limit: %d. Number of additional shards that would have resulted from this request: %d.", s.opts.AccountID, s.opts.Region, have, s.opts.ShardLimit, more)
	}
	return nil
}

func (s *Server) openShards(now time.Time) (n int) {
	for _, st := range s.all(now) {
		n += len(st.open)
		st.mu.Unlock()
	}
	return n
}
