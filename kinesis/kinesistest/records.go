package kinesistest

import (
	"encoding/binary"
	"sort"
	"time"
)

// records is the content of one shard. A record is kept as the CBOR map that
// GetRecords answers with, back to back in segments, so that a page in CBOR is a
// range of bytes. Bytes once written never move or change: a page stays valid
// after the stream's lock is released.
type records struct {
	segments []*segment
	oldest   uint64 // counter of the first record that is not trimmed
	next     uint64 // counter of the next record
	arrived  int64  // of the latest record, ms
}

type segment struct {
	first   uint64 // counter of entries[0]
	bytes   []byte
	entries []entry
}

type entry struct {
	arrived int64  // ms since the epoch
	off     uint32 // of the map in segment.bytes
	data    uint32 // length of Data
	key     uint16 // length of PartitionKey, which ends the map
}

func (e entry) size() int { return int(e.data) + int(e.key) }

const (
	firstSegment = 16 << 10
	lastSegment  = 4 << 20

	mapHead   = "\xa4\x6eSequenceNumber\x78\x38" // then 56 digits
	mapTime   = "\x78\x1bApproximateArrivalTimestamp\xc1\x1b"
	mapData   = "\x64Data"
	mapKey    = "\x6cPartitionKey"
	mapFixed  = len(mapHead) + sequenceDigits + len(mapTime) + 8 + len(mapData)
	mapMargin = mapFixed + len(mapKey) + 2*9
)

func (r *records) append(seq sequence, arrived int64, key string, data []byte) {
	seg := r.room(mapMargin + len(key) + len(data))
	off := len(seg.bytes)
	b := append(seg.bytes, mapHead...)
	b = seq.append(b)
	b = append(b, mapTime...)
	b = binary.BigEndian.AppendUint64(b, uint64(arrived))
	b = append(b, mapData...)
	b = append(cborHead(b, 2, len(data)), data...)
	b = append(b, mapKey...)
	b = append(cborHead(b, 3, len(key)), key...)
	seg.bytes = b
	seg.entries = append(seg.entries, entry{arrived, uint32(off), uint32(len(data)), uint16(len(key))})
	r.arrived = arrived
	r.next++
}

// room is the segment that takes n more bytes without moving the ones it has.
func (r *records) room(n int) *segment {
	size := firstSegment
	if last := len(r.segments) - 1; last >= 0 {
		seg := r.segments[last]
		if cap(seg.bytes)-len(seg.bytes) >= n {
			return seg
		}
		size = min(2*cap(seg.bytes), lastSegment)
	}
	seg := &segment{first: r.next, bytes: make([]byte, 0, max(size, n))}
	r.segments = append(r.segments, seg)
	return seg
}

// trim forgets records that arrived at or before an instant.
func (r *records) trim(horizon int64) {
	for r.oldest < r.next {
		seg := r.segments[0]
		if last := seg.entries[len(seg.entries)-1]; last.arrived <= horizon {
			r.segments = r.segments[1:]
			r.oldest = seg.first + uint64(len(seg.entries))
			continue
		}
		i := int(r.oldest - seg.first)
		i += sort.Search(len(seg.entries)-i, func(j int) bool { return seg.entries[i+j].arrived > horizon })
		r.oldest = seg.first + uint64(i)
		return
	}
}

// since is the counter of the first record that arrived at or after an instant.
func (r *records) since(at int64) uint64 {
	for _, seg := range r.segments {
		i := sort.Search(len(seg.entries), func(i int) bool { return seg.entries[i].arrived >= at })
		if i < len(seg.entries) {
			return max(r.oldest, seg.first+uint64(i))
		}
	}
	return r.next
}

// run is a stretch of records in one segment.
type run struct {
	bytes   []byte // of the maps, back to back
	entries []entry
}

// read takes records from a counter on: at most limit, at most maxBytes of data
// and keys unless the first alone is larger.
func (r *records) read(from uint64, limit, maxBytes int) (runs []run, count, size int) {
	i := sort.Search(len(r.segments), func(i int) bool {
		return r.segments[i].first+uint64(len(r.segments[i].entries)) > from
	})
	for ; i < len(r.segments) && count < limit; i++ {
		seg := r.segments[i]
		low := int(max(from, seg.first) - seg.first)
		high := low
		for high < len(seg.entries) && count < limit {
			n := seg.entries[high].size()
			if count > 0 && size+n > maxBytes {
				break
			}
			size += n
			count++
			high++
		}
		if high > low {
			end := len(seg.bytes)
			if high < len(seg.entries) {
				end = int(seg.entries[high].off)
			}
			runs = append(runs, run{seg.bytes[seg.entries[low].off:end:end], seg.entries[low:high:high]})
		}
		if high < len(seg.entries) {
			break
		}
	}
	return runs, count, size
}

// at is the record with a counter that read would find.
func (r *records) at(counter uint64) (Record, bool) {
	runs, n, _ := r.read(counter, 1, 1)
	if n == 0 {
		return Record{}, false
	}
	return runs[0].record(0), true
}

// split cuts record i of a run, whose map starts at off, into its members.
func (u run) split(i int) (seq, data, key []byte) {
	e := u.entries[i]
	m := u.bytes[e.off-u.entries[0].off:]
	seq = m[len(mapHead) : len(mapHead)+sequenceDigits]
	d := mapFixed + cborHeadLen(int(e.data))
	data = m[d : d+int(e.data)]
	k := d + int(e.data) + len(mapKey) + cborHeadLen(int(e.key))
	return seq, data, m[k : k+int(e.key)]
}

func (u run) record(i int) Record {
	seq, data, key := u.split(i)
	return Record{
		SequenceNumber: string(seq),
		PartitionKey:   string(key),
		Data:           append([]byte{}, data...),
		Arrived:        time.UnixMilli(u.entries[i].arrived).UTC(),
	}
}

// cborHead appends the head of an item: RFC 8949, section 3.
func cborHead(b []byte, major byte, n int) []byte {
	switch major <<= 5; {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return append(b, major|25, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
}

func cborHeadLen(n int) int {
	switch {
	case n < 24:
		return 1
	case n < 1<<8:
		return 2
	case n < 1<<16:
		return 3
	}
	return 5
}
