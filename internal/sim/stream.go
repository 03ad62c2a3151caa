// Package sim runs whole workers against one stream, one lease table and one set
// of tables, all in memory and on a virtual clock, with everything that can go
// wrong going wrong at random, and then checks what the tables hold. A seed fixes
// a run as far as the order of goroutines allows.
package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sort"
	"sync"
	"time"

	"github.com/kinetl/kinetl"
)

const (
	streamARN     = "arn:aws:kinesis:us-east-1:000000000000:stream/"
	streamCreated = 1_700_000_000
	firstSequence = "495903382714902566085596925383615710959215759891365"
)

// stream is a Kinesis stream as far as the engine can tell: shards over ranges of
// key hashes, that split and merge, with records in the order of their arrival.
type stream struct {
	name   string // and the table's
	mu     sync.Mutex
	shards []*shard
	count  int // records put, for sequence numbers
}

type shard struct {
	info    kinetl.ShardInfo
	low     uint32 // of key hashes, inclusive
	high    uint32
	records []kinetl.Record
}

func newStream(name string, shards int) *stream {
	s := &stream{name: name}
	width := ^uint32(0)/uint32(shards) + 1
	for i := range shards {
		low, high := uint32(i)*width, uint32(i)*width+width-1
		if i == shards-1 {
			high = ^uint32(0)
		}
		s.add(low, high)
	}
	return s
}

func (s *stream) add(low, high uint32, parents ...string) {
	s.shards = append(s.shards, &shard{
		info: kinetl.ShardInfo{ID: s.shardID(len(s.shards)), Parents: parents, FirstSeq: s.sequence()},
		low:  low, high: high,
	})
}

func (s *stream) shardID(n int) kinetl.ShardID {
	return kinetl.ShardID{Stream: streamARN + s.name, Created: streamCreated, Shard: fmt.Sprintf("shardId-%012d", n)}
}

func (s *stream) sequence() string {
	s.count++
	return fmt.Sprintf("%s%05d", firstSequence, s.count)
}

func hashKey(key string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return h.Sum32()
}

// put adds user records of one key, several of them as one aggregated record.
func (s *stream) put(key string, payloads ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hashKey(key)
	for _, sh := range s.shards {
		if sh.info.Closed || h < sh.low || h > sh.high {
			continue
		}
		seq := s.sequence()
		for i, p := range payloads {
			sh.records = append(sh.records, kinetl.Record{
				Sequence: seq, Sub: uint64(i), PartitionKey: key, Arrived: time.Now(), Data: p,
			})
		}
		return
	}
	panic("no open shard for key " + key)
}

func (s *stream) open() []*shard {
	var out []*shard
	for _, sh := range s.shards {
		if !sh.info.Closed {
			out = append(out, sh)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].low < out[j].low })
	return out
}

func (s *stream) close(sh *shard) {
	sh.info.Closed, sh.info.LastSeq = true, s.sequence()
}

func (s *stream) split(rng *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.open()
	sh := open[rng.IntN(len(open))]
	if sh.high-sh.low < 1000 || len(open) > 12 {
		return
	}
	middle := sh.low + (sh.high-sh.low)/2
	s.close(sh)
	s.add(sh.low, middle, sh.info.ID.Shard)
	s.add(middle+1, sh.high, sh.info.ID.Shard)
}

func (s *stream) merge(rng *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.open()
	if len(open) < 2 {
		return
	}
	i := rng.IntN(len(open) - 1)
	a, b := open[i], open[i+1]
	s.close(a)
	s.close(b)
	s.add(a.low, b.high, a.info.ID.Shard, b.info.ID.Shard)
}

func (s *stream) find(id kinetl.ShardID) *shard {
	for _, sh := range s.shards {
		if sh.info.ID == id {
			return sh
		}
	}
	return nil
}

// source is one worker's connection to the streams.
type source struct {
	streams []*stream
	chaos   *chaos
	onRead  func(kinetl.ShardInfo) // called when a shard is opened
}

var errService = errors.New("the service answered with an error")

func (s *source) Shards(ctx context.Context, _ time.Time) (kinetl.Listing, error) {
	if err := s.chaos.call(ctx, 0.02); err != nil {
		return kinetl.Listing{}, err
	}
	out := kinetl.Listing{At: time.Now()}
	for _, st := range s.streams {
		st.mu.Lock()
		for _, sh := range st.shards {
			out.Shards = append(out.Shards, sh.info)
		}
		st.mu.Unlock()
	}
	return out, nil
}

func (s *source) Read(_ context.Context, id kinetl.ShardID, from kinetl.Resume) (kinetl.Reader, error) {
	for _, st := range s.streams {
		st.mu.Lock()
		defer st.mu.Unlock()
		sh := st.find(id)
		if sh == nil {
			continue
		}
		s.onRead(sh.info)
		next := 0
		for next < len(sh.records) && sh.records[next].Position() <= from.After {
			next++
		}
		return &reader{s.chaos, st, sh, next}, nil
	}
	return nil, &kinetl.GoneError{Shard: id}
}

type reader struct {
	chaos  *chaos
	stream *stream
	shard  *shard
	next   int
}

func (r *reader) Close() error { return nil }

func (r *reader) Ready(ctx context.Context) (int64, error) {
	return 2000, r.chaos.wait(ctx, 200*time.Millisecond)
}

func (r *reader) Next(ctx context.Context) (kinetl.Fetch, error) {
	asked := time.Now()
	if err := r.chaos.call(ctx, 0.01); err != nil {
		return kinetl.Fetch{}, err
	}
	size := r.chaos.intn(40)
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	all := r.shard.records
	if r.next == len(all) && r.shard.info.Closed {
		return kinetl.Fetch{}, io.EOF
	}
	var f kinetl.Fetch
	for r.next < len(all) && len(f.Records) < size {
		f.Records = append(f.Records, all[r.next])
		f.Bytes += int64(len(all[r.next].Data))
		r.next++
	}
	if r.next == len(all) {
		f.CaughtUp = asked
	} else {
		f.Lag = time.Since(all[r.next].Arrived) + 1
	}
	return f, nil
}
