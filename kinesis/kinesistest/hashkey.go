package kinesistest

import (
	"crypto/md5"
	"encoding/binary"
	"math/big"
	"math/bits"
)

// hashKey is a point of the key space, 0 to 2^128-1.
type hashKey struct{ hi, lo uint64 }

var maxHashKey = hashKey{1<<64 - 1, 1<<64 - 1}

// hashOf is where a partition key falls: its MD5
// (docs.aws.amazon.com/streams/latest/dev/key-concepts.html, "Partition Key").
func hashOf(partitionKey string) hashKey {
	sum := md5.Sum([]byte(partitionKey))
	return hashKey{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:])}
}

func (k hashKey) less(o hashKey) bool { return k.hi < o.hi || k.hi == o.hi && k.lo < o.lo }

func (k hashKey) next() hashKey {
	lo, c := bits.Add64(k.lo, 1, 0)
	return hashKey{k.hi + c, lo}
}

func (k hashKey) prev() hashKey {
	lo, b := bits.Sub64(k.lo, 1, 0)
	return hashKey{k.hi - b, lo}
}

// middle is the key at which a split makes two halves.
func middle(a, b hashKey) hashKey {
	lo, c := bits.Add64(a.lo, b.lo, 0)
	hi, c := bits.Add64(a.hi, b.hi, c)
	return hashKey{hi>>1 | c<<63, lo>>1 | hi<<63}.next()
}

func (k hashKey) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	return new(big.Int).SetBytes(b[:]).String()
}

func parseHashKey(text string) (hashKey, bool) {
	if decimal("", text, 39) != nil {
		return hashKey{}, false
	}
	v, ok := new(big.Int).SetString(text, 10)
	if !ok || v.BitLen() > 128 {
		return hashKey{}, false
	}
	var b [16]byte
	v.FillBytes(b[:])
	return hashKey{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, true
}

// uniform is the first key of range i of n equal ones.
func uniform(i, n int) hashKey {
	width := new(big.Int).Lsh(big.NewInt(1), 128)
	width.Div(width, big.NewInt(int64(n))).Mul(width, big.NewInt(int64(i)))
	var b [16]byte
	width.FillBytes(b[:])
	return hashKey{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}
