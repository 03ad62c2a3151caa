package kinesistest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// GetRecords: docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html
//
// Up to Limit (default and most 10,000) records and 10 MiB from where the iterator
// stands. MillisBehindLatest is the age of the next unread record, 0 at the tip.
// When a closed shard has been returned to its end there is no NextShardIterator
// but the ChildShards. An iterator older than five minutes is
// ExpiredIteratorException. A shard serves five calls and 2 MiB a second; a page of
// 10 MiB uses five seconds up.
type getRecordsInput struct {
	ShardIterator *string
	Limit         *int64
	StreamARN     *string
}

type getRecordsOutput struct {
	server      *Server
	runs        []run
	count       int
	next        string // "": none
	behind      int64
	childShards []childShard
}

type childShard struct {
	ShardId      string
	ParentShards []string
	HashKeyRange hashKeyRange
}

// targetOf names the stream and shard behind the iterator.
func (s *Server) targetOf(in *getRecordsInput) (stream, shard string) {
	if in.ShardIterator == nil {
		return "", ""
	}
	it, err := s.openIterator(*in.ShardIterator)
	if err != nil {
		return "", ""
	}
	return it.stream, shardID(it.index)
}

func (s *Server) getRecords(q *request, in *getRecordsInput) (*getRecordsOutput, error) {
	if in.ShardIterator == nil {
		return nil, required("shardIterator")
	}
	limit := int64(maxPageRecords)
	if in.Limit != nil {
		limit = *in.Limit
	}
	if limit < 1 || limit > maxPageRecords {
		return nil, invalid("Limit %d is not between 1 and %d.", limit, maxPageRecords)
	}
	it, err := s.openIterator(*in.ShardIterator)
	if err != nil {
		return nil, err
	}
	now := q.now.UnixMilli()
	if now-it.made > iteratorLife.Milliseconds() {
		return nil, refuse("ExpiredIteratorException", "Iterator expired. The iterator was created %d ms ago while right now it is %d; an iterator lives for %d ms.", now-it.made, now, iteratorLife.Milliseconds())
	}
	st, err := s.findData(streamRef{&it.stream, in.StreamARN}, q.now)
	if err != nil {
		return nil, err
	}
	defer st.mu.Unlock()
	if st.uid != it.uid || int(it.index) >= len(st.shards) {
		return nil, refuse("ResourceNotFoundException", "The stream %s that the iterator was made for does not exist any more.", it.stream)
	}
	sh := st.shards[it.index]
	if st.expired(sh, q.now) {
		return nil, st.noShard(sh.id())
	}
	if !s.opts.NoLimits && !sh.reads.allow(q.now) {
		return nil, throttled(st, sh)
	}
	st.trim(sh, q.now)
	out, size := &getRecordsOutput{behind: 1}, 0
	if !q.do.emptyPage {
		out, size = st.page(sh, it.counter, int(limit), maxPageBytes, q.now)
	}
	sh.reads.charge(q.now, size)
	out.server = s
	q.Records = out.count
	from := max(it.counter, sh.records.oldest) + uint64(out.count)
	if out.childShards == nil {
		out.next = s.sealIterator(iterator{st.uid, sh.index, from, now, st.name})
	}
	return out, nil
}

// page is what a shard has from a place on, and how many bytes that is.
func (st *stream) page(sh *shard, from uint64, limit, maxBytes int, now time.Time) (*getRecordsOutput, int) {
	from = max(from, sh.records.oldest)
	out := &getRecordsOutput{}
	size := 0
	out.runs, out.count, size = sh.records.read(from, limit, maxBytes)
	next := from + uint64(out.count)
	if runs, n, _ := sh.records.read(next, 1, 1); n > 0 {
		out.behind = max(out.behind, now.UnixMilli()-runs[0].entries[0].arrived)
	} else if !sh.closed.IsZero() {
		out.childShards = []childShard{}
		for _, c := range st.children(sh) {
			child := childShard{ShardId: c.id(), HashKeyRange: c.keys()}
			for _, p := range c.parents {
				child.ParentShards = append(child.ParentShards, shardID(p))
			}
			out.childShards = append(out.childShards, child)
		}
	}
	return out, size
}

func (out *getRecordsOutput) write(w http.ResponseWriter, p protocol) error {
	if p == protocolCBOR {
		return out.writeCBOR(w)
	}
	return out.writeJSON(w)
}

// writeCBOR sends the stored maps as they are.
func (out *getRecordsOutput) writeCBOR(w http.ResponseWriter) error {
	members := 2
	tail := cborHead([]byte("\x72MillisBehindLatest"), 0, int(min(out.behind, 1<<32-1)))
	if out.next != "" {
		members++
		tail = cborHead(append(tail, "\x71NextShardIterator"...), 3, len(out.next))
		tail = append(tail, out.next...)
	}
	if out.childShards != nil {
		members++
		children, err := cbor.Marshal(out.childShards)
		if err != nil {
			return err
		}
		tail = append(append(tail, "\x6bChildShards"...), children...)
	}
	head := append(cborHead(nil, 5, members), "\x67Records"...)
	head = cborHead(head, 4, out.count)
	n := len(head) + len(tail)
	for _, r := range out.runs {
		n += len(r.bytes)
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, r := range out.runs {
		if _, err := w.Write(r.bytes); err != nil {
			return err
		}
	}
	_, err := w.Write(tail)
	return err
}

func (out *getRecordsOutput) writeJSON(w http.ResponseWriter) error {
	buf, _ := out.server.pages.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer out.server.pages.Put(buf)
	b, err := out.appendJSON((*buf)[:0], "NextShardIterator", out.next)
	if err != nil {
		return err
	}
	*buf = b
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, err = w.Write(b)
	return err
}

// appendJSON writes a page; next is the member that says where reading goes on.
func (out *getRecordsOutput) appendJSON(b []byte, member, next string) ([]byte, error) {
	b = append(b, `{"Records":[`...)
	for _, r := range out.runs {
		b = r.appendJSON(b)
	}
	if out.count > 0 {
		b = b[:len(b)-1] // the comma after the last record
	}
	b = strconv.AppendInt(append(b, `],"MillisBehindLatest":`...), out.behind, 10)
	if next != "" {
		b = append(append(append(append(append(b, `,"`...), member...), `":"`...), next...), '"')
	}
	if out.childShards != nil {
		children, err := json.Marshal(out.childShards)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"ChildShards":`...), children...)
	}
	return append(b, '}'), nil
}

// appendJSON writes the run's records, each with a comma behind it.
func (u run) appendJSON(b []byte) []byte {
	for i := range u.entries {
		seq, data, key := u.split(i)
		b = append(append(b, `{"SequenceNumber":"`...), seq...)
		b = appendSeconds(append(b, `","ApproximateArrivalTimestamp":`...), u.entries[i].arrived)
		b = base64.StdEncoding.AppendEncode(append(b, `,"Data":"`...), data)
		b = appendString(append(b, `","PartitionKey":`...), key)
		b = append(b, '}', ',')
	}
	return b
}
