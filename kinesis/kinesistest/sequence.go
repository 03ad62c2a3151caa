package kinesistest

import (
	"math/bits"
	"time"
)

// sequence is a sequence number: 186 bits, from the top
//
//	2 | shard creation, s: 36 | shard index: 4 | counter: 64 | 0: 8 | its time, s: 36 | shard index: 32 | version 2: 4
//
// in decimal 56 digits. The creation time leads, so the numbers of a child shard,
// which is created later than its parents, are larger than theirs.
type sequence struct{ hi, mid, lo uint64 }

// lastCounter is the counter of a closed shard's ending sequence number.
const lastCounter = 1<<63 - 1

const sequenceDigits = 56

func makeSequence(created int64, index uint32, counter uint64, at int64) sequence {
	c, t := uint64(created)&(1<<36-1), uint64(at)&(1<<36-1)
	return sequence{
		hi:  2<<56 | c<<20 | uint64(index&15)<<16 | counter>>48,
		mid: counter<<16 | t>>28,
		lo:  t<<36 | uint64(index)<<4 | 2,
	}
}

func (q sequence) created() int64  { return int64(q.hi >> 20 & (1<<36 - 1)) }
func (q sequence) counter() uint64 { return q.hi<<48 | q.mid>>16 }
func (q sequence) index() uint32   { return uint32(q.lo >> 4) }
func (q sequence) time() time.Time { return time.Unix(int64(q.mid&255<<28|q.lo>>36), 0) }

func (q sequence) less(r sequence) bool {
	if q.hi != r.hi {
		return q.hi < r.hi
	}
	if q.mid != r.mid {
		return q.mid < r.mid
	}
	return q.lo < r.lo
}

// append writes the decimal digits: three divisions by 10^19 and the digits of
// the remainders, since math/big costs more than storing the record does.
func (q sequence) append(b []byte) []byte {
	const group = 1e19
	var parts [3]uint64
	for i := range parts {
		var r uint64
		q.hi, r = bits.Div64(0, q.hi, group)
		q.mid, r = bits.Div64(r, q.mid, group)
		q.lo, parts[i] = bits.Div64(r, q.lo, group)
	}
	var d [57]byte
	for i, v := range parts {
		for j := range 19 {
			d[56-19*i-j] = byte('0' + v%10)
			v /= 10
		}
	}
	return append(b, d[57-sequenceDigits:]...)
}

func (q sequence) String() string { return string(q.append(nil)) }

// parseSequence reads decimal text. It accepts only numbers of the layout above.
func parseSequence(text string) (sequence, bool) {
	if len(text) != sequenceDigits {
		return sequence{}, false
	}
	var q sequence
	for i := range len(text) {
		d := uint64(text[i] - '0')
		if d > 9 {
			return sequence{}, false
		}
		var c, h uint64
		h, q.lo = bits.Mul64(q.lo, 10)
		q.lo, c = bits.Add64(q.lo, d, 0)
		d = h + c
		h, q.mid = bits.Mul64(q.mid, 10)
		q.mid, c = bits.Add64(q.mid, d, 0)
		q.hi = q.hi*10 + h + c
	}
	return q, q.hi>>56 == 2 && q.lo&15 == 2 && q.mid>>8&255 == 0 && q.counter() <= lastCounter && uint32(q.hi>>16&15) == q.index()&15
}
