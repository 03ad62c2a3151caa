package kinesistest

import (
	"fmt"
	"time"
)

// Record is a record as it is stored.
type Record struct {
	SequenceNumber string
	PartitionKey   string
	Data           []byte
	Arrived        time.Time // UTC, milliseconds
}

// The methods below act on streams directly: no limits, no faults, nothing in
// Calls, and no transition: a stream that is CREATING or UPDATING is finished first.

// CreateStream makes a provisioned stream of shards with equal key ranges.
func (s *Server) CreateStream(name string, shards int) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	if shards < 1 {
		return fmt.Errorf("create stream %s: %d shards", name, shards)
	}
	if err := s.addStream(name, provisioned, shards, defaultRecordBytes, nil, s.now()); err != nil {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	st, err := s.ready(name)
	if err != nil {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	st.mu.Unlock()
	return nil
}

// DeleteStream removes a stream with its records and consumers.
func (s *Server) DeleteStream(name string) error {
	q := &request{now: s.now()}
	st, err := s.ready(name)
	if err != nil {
		return fmt.Errorf("delete stream %s: %w", name, err)
	}
	st.mu.Unlock()
	enforce := true
	if _, err := s.deleteStream(q, &deleteStreamInput{streamRef{StreamName: &name}, &enforce}); err != nil {
		return fmt.Errorf("delete stream %s: %w", name, err)
	}
	s.lookup(name, q.now.Add(s.opts.StreamTransition))
	return nil
}

// StreamARN is the ARN that a stream of this name has here.
func (s *Server) StreamARN(name string) string { return s.arn(name) }

// Put stores a record by its partition key and says where.
func (s *Server) Put(stream, partitionKey string, data []byte) (shard, sequenceNumber string, err error) {
	st, err := s.ready(stream)
	if err != nil {
		return "", "", fmt.Errorf("put: %w", err)
	}
	defer st.mu.Unlock()
	e := putEntry{Data: &data, PartitionKey: &partitionKey}
	hash, err := e.check(st)
	if err != nil {
		return "", "", fmt.Errorf("put: %w", err)
	}
	sh := st.route(hash)
	return sh.id(), st.put(sh, partitionKey, data, s.now()).String(), nil
}

// PutShard stores a record in an open shard, whatever its partition key.
func (s *Server) PutShard(stream, shard, partitionKey string, data []byte) (sequenceNumber string, err error) {
	st, err := s.ready(stream)
	if err != nil {
		return "", fmt.Errorf("put: %w", err)
	}
	defer st.mu.Unlock()
	sh, err := st.openShard(shard, s.now())
	if err != nil {
		return "", fmt.Errorf("put: %w", err)
	}
	e := putEntry{Data: &data, PartitionKey: &partitionKey}
	if _, err := e.check(st); err != nil {
		return "", fmt.Errorf("put: %w", err)
	}
	return st.put(sh, partitionKey, data, s.now()).String(), nil
}

// Split closes a shard and opens one for each half of its keys.
func (s *Server) Split(stream, shard string) (children [2]string, err error) {
	st, err := s.ready(stream)
	if err != nil {
		return children, fmt.Errorf("split %s: %w", shard, err)
	}
	defer st.mu.Unlock()
	sh, err := st.openShard(shard, s.now())
	if err != nil {
		return children, fmt.Errorf("split %s: %w", shard, err)
	}
	if sh.low == sh.high {
		return children, fmt.Errorf("split %s: it has a single hash key", shard)
	}
	a, b := st.split(sh, middle(sh.low, sh.high), s.now())
	return [2]string{a.id(), b.id()}, nil
}

// Merge closes two adjacent shards and opens one for their keys.
func (s *Server) Merge(stream, shard, adjacentShard string) (child string, err error) {
	st, err := s.ready(stream)
	if err != nil {
		return "", fmt.Errorf("merge %s: %w", shard, err)
	}
	defer st.mu.Unlock()
	a, err := st.openShard(shard, s.now())
	if err != nil {
		return "", fmt.Errorf("merge %s: %w", shard, err)
	}
	b, err := st.openShard(adjacentShard, s.now())
	if err != nil {
		return "", fmt.Errorf("merge %s: %w", shard, err)
	}
	if a == b || !adjacent(a, b) {
		return "", fmt.Errorf("merge %s: %s is not adjacent", shard, adjacentShard)
	}
	return st.merge(a, b, s.now()).id(), nil
}

// Consumers are the ARNs of a stream's consumers that are not being deleted, by name.
func (s *Server) Consumers(stream string) ([]string, error) {
	st, err := s.ready(stream)
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	defer st.mu.Unlock()
	var arns []string
	for _, c := range st.consumers {
		if c.status != statusDeleting {
			arns = append(arns, c.arn)
		}
	}
	return arns, nil
}

// Subscriptions is how many event streams of a stream's shards are open.
func (s *Server) Subscriptions(stream string) (n int, err error) {
	st, err := s.ready(stream)
	if err != nil {
		return 0, fmt.Errorf("count subscriptions: %w", err)
	}
	defer st.mu.Unlock()
	for _, c := range st.consumers {
		for _, of := range c.shards {
			if of.current != nil {
				n++
			}
		}
	}
	return n, nil
}

// Shards are the ids of the shards that ListShards would list.
func (s *Server) Shards(stream string) ([]string, error) {
	st, err := s.ready(stream)
	if err != nil {
		return nil, fmt.Errorf("list shards: %w", err)
	}
	defer st.mu.Unlock()
	var ids []string
	for _, sh := range st.shards {
		if !st.expired(sh, s.now()) {
			ids = append(ids, sh.id())
		}
	}
	return ids, nil
}

// Records are copies of what a shard holds.
func (s *Server) Records(stream, shard string) ([]Record, error) {
	st, err := s.ready(stream)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", shard, err)
	}
	defer st.mu.Unlock()
	sh, err := st.shard(shard, s.now())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", shard, err)
	}
	st.trim(sh, s.now())
	r := &sh.records
	runs, n, _ := r.read(r.oldest, int(r.next-r.oldest), 1<<62)
	out := make([]Record, 0, n)
	for _, u := range runs {
		for i := range u.entries {
			out = append(out, u.record(i))
		}
	}
	return out, nil
}

// ready returns a stream, locked, with any transition behind it.
func (s *Server) ready(name string) (*stream, error) {
	st, err := s.find(streamRef{StreamName: &name}, s.now())
	if err != nil {
		return nil, err
	}
	if st.status == statusDeleting {
		st.mu.Unlock()
		return nil, s.noStream(name)
	}
	st.settle(st.until)
	return st, nil
}
