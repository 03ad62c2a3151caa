package kinetl

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// identity makes _openetl_id: the record's identity, the same however often it is
// read (R1); see RecordID.
type identity struct {
	text   []byte // what is hashed
	prefix int    // bytes of text that the shard's records have in common
}

// enter says from which shard the next records are.
func (d *identity) enter(shard *ShardID) {
	d.text = append(append(d.text[:0], shard.Stream...), '\n')
	d.text = append(strconv.AppendInt(d.text, shard.Created, 10), '\n')
	d.text = append(append(d.text, shard.Shard...), '\n')
	d.prefix = len(d.text)
}

// append appends a record's id. To go on from the state of a hash behind the prefix
// would save it one block of three, and cost more than that to restore.
func (d *identity) append(dst []byte, rec *Record) []byte {
	d.text = append(append(d.text[:d.prefix], rec.Sequence...), '\n')
	d.text = strconv.AppendUint(d.text, rec.Sub, 10)
	sum := sha256.Sum256(d.text)
	return hex.AppendEncode(dst, sum[:16])
}

// RecordID is the _openetl_id of a record: hex of the first 16 bytes of SHA-256 over
// stream ARN, stream creation time in seconds, shard id, sequence number and
// sub-sequence number, joined by line feeds.
func RecordID(shard ShardID, sequence string, sub uint64) string {
	var d identity
	d.enter(&shard)
	return string(d.append(nil, &Record{Sequence: sequence, Sub: sub}))
}
