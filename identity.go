package kinetl

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"hash"
	"strconv"
)

// identity makes _openetl_id: the record's identity, the same however often it is
// read. It is hex of the first 16 bytes of SHA-256 over stream ARN, stream creation
// time in seconds, shard id, sequence number and sub-sequence number, joined by line
// feeds (R1).
type identity struct {
	shard ShardID
	hash  hash.Hash
	state []byte // of hash, behind what the shard's records have in common; empty: not yet known
	text  []byte
	sum   []byte
}

// enter says from which shard the next records are.
func (d *identity) enter(shard *ShardID) { d.shard, d.state = *shard, d.state[:0] }

// append appends a record's id.
func (d *identity) append(dst []byte, rec *Record) []byte {
	if len(d.state) == 0 {
		d.start()
	}
	// Neither can fail: the state is this hash's own.
	_ = d.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(d.state)
	d.text = strconv.AppendUint(append(append(d.text[:0], rec.Sequence...), '\n'), rec.Sub, 10)
	d.hash.Write(d.text)
	d.sum = d.hash.Sum(d.sum[:0])
	return hex.AppendEncode(dst, d.sum[:16])
}

func (d *identity) start() {
	d.hash = sha256.New()
	d.text = append(append(d.text[:0], d.shard.Stream...), '\n')
	d.text = append(strconv.AppendInt(d.text, d.shard.Created, 10), '\n')
	d.text = append(append(d.text, d.shard.Shard...), '\n')
	d.hash.Write(d.text)
	d.state, _ = d.hash.(encoding.BinaryAppender).AppendBinary(d.state[:0])
}
