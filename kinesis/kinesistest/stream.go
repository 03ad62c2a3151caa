package kinesistest

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	statusCreating = "CREATING"
	statusActive   = "ACTIVE"
	statusUpdating = "UPDATING"
	statusDeleting = "DELETING"

	provisioned = "PROVISIONED"
	onDemand    = "ON_DEMAND"
)

// stream is one stream. Its lock guards everything below it, shards included; it
// is held only as long as it takes to find or store records, never while an answer
// is written.
type stream struct {
	mu                      sync.Mutex
	name, arn               string
	uid                     uint64 // tells a stream from its predecessor of the same name
	created                 time.Time
	firstSecond, lastSecond int64 // with which its shards' sequence numbers lead: of the first shards, of the last at deletion
	mode                    string
	retention               time.Duration
	maxRecord               int // bytes
	tags                    map[string]string

	status string
	until  time.Time          // end of the transition
	finish func(at time.Time) // what the transition does in the end

	shards []*shard // by index; expired ones stay, so ids are never used again
	open   []*shard // by hash key

	consumers []*consumer      // by name
	stamps    map[string]int64 // by consumer name, the second of the latest that had it
	watch     chan struct{}    // closed by wake; nil: nobody watches
}

type shard struct {
	index      uint32
	low, high  hashKey
	parents    []uint32 // parent, adjacent parent
	created    int64    // seconds, as its sequence numbers have it
	opened     time.Time
	closed     time.Time // zero: open
	start, end sequence
	records    records
	reads      readLimit
	writes     writeLimit
}

func shardID(index uint32) string { return fmt.Sprintf("shardId-%012d", index) }

func (sh *shard) id() string { return shardID(sh.index) }

// streamRef is how a request names its stream.
type streamRef struct {
	StreamName *string
	StreamARN  *string
}

func (r *streamRef) target() (stream, shard string) {
	switch {
	case r.StreamName != nil:
		return *r.StreamName, ""
	case r.StreamARN != nil:
		return (*r.StreamARN)[strings.LastIndexByte(*r.StreamARN, '/')+1:], ""
	}
	return "", ""
}

// name checks that the name and the ARN are well formed and agree.
func (s *Server) name(r streamRef) (string, error) {
	if r.StreamName == nil && r.StreamARN == nil {
		return "", invalid("Either StreamARN or StreamName must be provided.")
	}
	if r.StreamName != nil {
		if err := checkName(*r.StreamName); err != nil {
			return "", err
		}
	}
	if r.StreamARN == nil {
		return *r.StreamName, nil
	}
	part := strings.SplitN(*r.StreamARN, ":", 6)
	if len(part) != 6 || part[0] != "arn" || part[2] != "kinesis" || !strings.HasPrefix(part[5], "stream/") {
		return "", validation("Value '%s' at 'streamARN' failed to satisfy constraint: Member must be the ARN of a stream", *r.StreamARN)
	}
	name := strings.TrimPrefix(part[5], "stream/")
	if err := checkName(name); err != nil {
		return "", err
	}
	if r.StreamName != nil && *r.StreamName != name {
		return "", invalid("StreamARN %s and StreamName %s name different streams.", *r.StreamARN, *r.StreamName)
	}
	if part[3] != s.opts.Region || part[4] != s.opts.AccountID {
		return "", refuse("ResourceNotFoundException", "Stream %s not found.", *r.StreamARN)
	}
	return name, nil
}

func checkName(name string) error {
	ok := len(name) >= 1 && len(name) <= 128
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
	}
	if !ok {
		return validation("Value '%s' at 'streamName' failed to satisfy constraint: Member must have 1 to 128 characters of [a-zA-Z0-9_.-]", name)
	}
	return nil
}

// find returns the stream, locked, as it stands now.
func (s *Server) find(r streamRef, now time.Time) (*stream, error) {
	name, err := s.name(r)
	if err != nil {
		return nil, err
	}
	return s.lookup(name, now)
}

func (s *Server) lookup(name string, now time.Time) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[name]
	if st == nil {
		return nil, s.noStream(name)
	}
	st.mu.Lock()
	st.settle(now)
	if st.status == "" {
		s.forget(st)
		st.mu.Unlock()
		return nil, s.noStream(name)
	}
	return st, nil
}

// past is what remains of a deleted stream.
type past struct {
	created time.Time
	last    int64 // see stream.lastSecond
}

// forget removes a deleted stream; both locks are held.
func (s *Server) forget(st *stream) {
	delete(s.streams, st.name)
	s.past[st.name] = past{st.created, st.lastSecond}
}

// findData is find for calls that move records, which know a stream that is ACTIVE
// or UPDATING only.
func (s *Server) findData(r streamRef, now time.Time) (*stream, error) {
	st, err := s.find(r, now)
	if err == nil && st.status != statusActive && st.status != statusUpdating {
		st.mu.Unlock()
		return nil, s.noStream(st.name)
	}
	return st, err
}

// findActive is find for calls that change a stream.
func (s *Server) findActive(r streamRef, now time.Time) (*stream, error) {
	st, err := s.find(r, now)
	if err == nil && st.status != statusActive {
		defer st.mu.Unlock()
		return nil, refuse("ResourceInUseException", "Stream %s under account %s not ACTIVE, instead in state %s.", st.name, s.opts.AccountID, st.status)
	}
	return st, err
}

// change starts a transition that ends with finish; at once when it takes no time.
func (s *Server) change(st *stream, status string, now time.Time, finish func(at time.Time)) {
	st.status, st.until, st.finish = status, now.Add(s.opts.StreamTransition), finish
	st.settle(now)
	st.wake()
}

// settle ends a transition whose time has come, as of the instant at which it ended.
func (st *stream) settle(now time.Time) {
	st.settleConsumers(now)
	if st.finish == nil || now.Before(st.until) {
		return
	}
	finish := st.finish
	st.finish = nil
	if st.status == statusDeleting {
		st.status = ""
	} else {
		st.status = statusActive
	}
	finish(st.until)
}

// addShard opens a shard. Its numbers lead with a second that is later than the
// parents' and, for a stream that was re-created, later than its predecessor's.
func (st *stream) addShard(low, high hashKey, at time.Time, parents ...*shard) *shard {
	created := at.Unix()
	if len(parents) == 0 {
		created = st.firstSecond
	}
	sh := &shard{index: uint32(len(st.shards)), low: low, high: high, opened: at}
	for _, p := range parents {
		sh.parents = append(sh.parents, p.index)
		created = max(created, p.created+1)
	}
	sh.created = created
	sh.start = makeSequence(created, sh.index, 0, created)
	sh.records.oldest, sh.records.next = 1, 1
	st.shards = append(st.shards, sh)
	i := sort.Search(len(st.open), func(i int) bool { return low.less(st.open[i].low) })
	st.open = append(st.open[:i], append([]*shard{sh}, st.open[i:]...)...)
	return sh
}

func (st *stream) closeShard(sh *shard, at time.Time) {
	st.wake()
	sh.closed = at
	sh.end = makeSequence(sh.created, sh.index, lastCounter, at.Unix())
	for i, o := range st.open {
		if o == sh {
			st.open = append(st.open[:i], st.open[i+1:]...)
			return
		}
	}
}

// split closes a shard and opens two in its place; at is the first key of the second.
func (st *stream) split(sh *shard, key hashKey, at time.Time) (a, b *shard) {
	st.closeShard(sh, at)
	return st.addShard(sh.low, key.prev(), at, sh), st.addShard(key, sh.high, at, sh)
}

// merge closes two adjacent shards and opens one in their place.
func (st *stream) merge(sh, adjacent *shard, at time.Time) *shard {
	st.closeShard(sh, at)
	st.closeShard(adjacent, at)
	low, high := sh, adjacent
	if high.low.less(low.low) {
		low, high = high, low
	}
	return st.addShard(low.low, high.high, at, sh, adjacent)
}

// adjacent tells whether two shards' key ranges touch. The last key has no next:
// without that the first and the last shard of a stream would.
func adjacent(a, b *shard) bool {
	return a.high.less(b.low) && a.high.next() == b.low || b.high.less(a.low) && b.high.next() == a.low
}

// expired: a closed shard leaves the listing when a retention period has passed
// since it was closed, so that its last record is gone too
// (docs.aws.amazon.com/streams/latest/dev/kinesis-using-sdk-java-after-resharding.html).
func (st *stream) expired(sh *shard, now time.Time) bool {
	return !sh.closed.IsZero() && !now.Before(sh.closed.Add(st.retention))
}

// shard finds a shard that has not expired, by id.
func (st *stream) shard(id string, now time.Time) (*shard, error) {
	i, err := strconv.ParseUint(strings.TrimPrefix(id, "shardId-"), 10, 32)
	if err != nil || i >= uint64(len(st.shards)) || st.shards[i].id() != id || st.expired(st.shards[i], now) {
		return nil, st.noShard(id)
	}
	return st.shards[i], nil
}

// openShard finds a shard that takes records, by id.
func (st *stream) openShard(id string, now time.Time) (*shard, error) {
	sh, err := st.shard(id, now)
	if err == nil && !sh.closed.IsZero() {
		return nil, invalid("Shard %s in stream %s is not open.", id, st.name)
	}
	return sh, err
}

// route is the open shard that a hash key falls to.
func (st *stream) route(k hashKey) *shard {
	i := sort.Search(len(st.open), func(i int) bool { return k.less(st.open[i].low) })
	return st.open[i-1]
}

// trim forgets what is older than the retention period.
func (st *stream) trim(sh *shard, now time.Time) {
	sh.records.trim(now.Add(-st.retention).UnixMilli())
}

// put stores a record. Arrival never runs back within a shard, whatever the clock does.
func (st *stream) put(sh *shard, key string, data []byte, now time.Time) sequence {
	arrived := max(now.UnixMilli(), sh.records.arrived)
	q := makeSequence(sh.created, sh.index, sh.records.next, arrived/1000)
	sh.records.append(q, arrived, key, data)
	st.wake()
	return q
}

// wake tells those who wait for something to happen to the stream.
func (st *stream) wake() {
	if st.watch != nil {
		close(st.watch)
		st.watch = nil
	}
}

// children are the shards that were made from one.
func (st *stream) children(sh *shard) []*shard {
	var out []*shard
	for _, c := range st.shards[sh.index+1:] {
		for _, p := range c.parents {
			if p == sh.index {
				out = append(out, c)
			}
		}
	}
	return out
}
