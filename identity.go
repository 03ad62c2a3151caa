package kinetl

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
	"strings"
	"sync"
)

// identity makes _openetl_id: the record's identity, the same however often it is
// read (R1); see RecordID.
type identity struct {
	text   []byte // what is hashed, padded to whole blocks
	prefix int    // bytes of text that the shard's records have in common
	hash   state  // of the whole blocks within the prefix
}

// enter says from which shard the next records are.
func (d *identity) enter(shard *ShardID) {
	d.text = appendPrefix(d.text[:0], shard)
	d.prefix = len(d.text)
	d.hash.begin(d.text[:d.prefix/sha256.BlockSize*sha256.BlockSize])
}

// appendPrefix appends what the texts of a shard's records begin with.
func appendPrefix(text []byte, shard *ShardID) []byte {
	text = append(append(text, shard.Stream...), '\n')
	text = append(strconv.AppendInt(text, shard.Created, 10), '\n')
	return append(append(text, shard.Shard...), '\n')
}

// append appends a record's id.
func (d *identity) append(dst []byte, rec *Record) []byte {
	d.text = append(append(d.text[:d.prefix], rec.Sequence...), '\n')
	d.text = strconv.AppendUint(d.text, rec.Sub, 10)
	sum := d.hash.sum(&d.text)
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

// state is SHA-256 that goes on behind blocks which many texts have in common. A fifth
// of what a small record costs was its id: the common blocks are hashed once, and a text
// that is padded here is not copied to be padded there.
type state struct {
	hash   resumable
	common int    // bytes that are in begun
	begun  []byte // the hash behind them, as it marshals itself
	ended  []byte // scratch
	plain  bool   // crypto/sha256 does not work as expected here
}

type resumable interface {
	hash.Hash
	encoding.BinaryUnmarshaler
	encoding.BinaryAppender
}

// What a marshaled hash begins with is four bytes, then the eight words of its state,
// which after the last padded block are the sum. Go documents no such thing, so each
// process looks first.
const magic = 4

var marshals = sync.OnceValue(func() bool {
	var s state
	text := []byte(strings.Repeat("one shard's records\n", 10))
	want := sha256.Sum256(text)
	s.start(text[:2*sha256.BlockSize])
	return !s.plain && s.sum(&text) == want
})

// begin takes whole blocks that the texts to come begin with.
func (s *state) begin(common []byte) {
	if s.plain = !marshals(); !s.plain {
		s.start(common)
	}
}

func (s *state) start(common []byte) {
	h, ok := sha256.New().(resumable)
	if !ok {
		s.plain = true
		return
	}
	h.Write(common)
	begun, err := h.AppendBinary(nil)
	s.hash, s.common, s.begun, s.plain = h, len(common), begun, err != nil
}

// sum is the SHA-256 of a text, which it may pad behind its end.
func (s *state) sum(text *[]byte) [sha256.Size]byte {
	if s.plain {
		return sha256.Sum256(*text)
	}
	t := append(*text, 0x80)
	for len(t)%sha256.BlockSize != sha256.BlockSize-8 {
		t = append(t, 0)
	}
	t = binary.BigEndian.AppendUint64(t, 8*uint64(len(*text)))
	*text = t[:len(*text)]
	if s.hash.UnmarshalBinary(s.begun) != nil {
		return sha256.Sum256(*text)
	}
	s.hash.Write(t[s.common:])
	ended, err := s.hash.AppendBinary(s.ended[:0])
	if err != nil || len(ended) < magic+sha256.Size {
		return sha256.Sum256(*text)
	}
	s.ended = ended
	return [sha256.Size]byte(ended[magic:])
}
