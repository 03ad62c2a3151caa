package kinesistest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"time"
)

// sealer makes and checks the opaque texts that clients hand back: shard iterators
// and page tokens. They are signed with a key of this server, so a text from
// elsewhere, or one that a client built, is refused.
type sealer struct{ key [32]byte }

const (
	kindIterator  = 'i'
	kindShards    = 's'
	kindStreams   = 'l'
	kindConsumers = 'c'
)

func (s *sealer) mac(kind byte, payload []byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	h.Write([]byte{kind})
	h.Write(payload)
	return h.Sum(nil)[:16]
}

func (s *sealer) seal(kind byte, payload []byte) string {
	return base64.StdEncoding.EncodeToString(append(s.mac(kind, payload), payload...))
}

func (s *sealer) open(kind byte, text string) ([]byte, bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 16 {
		return nil, false
	}
	return b[16:], hmac.Equal(b[:16], s.mac(kind, b[16:]))
}

// iterator is a place in a shard, good for five minutes from when it was made
// (API_GetShardIterator.html).
type iterator struct {
	uid     uint64 // stream
	index   uint32 // shard
	counter uint64 // of the next record
	made    int64  // ms
	stream  string // name
}

const iteratorLife = 5 * time.Minute

func (s *Server) sealIterator(it iterator) string {
	b := make([]byte, 28, 28+len(it.stream))
	binary.BigEndian.PutUint64(b, it.uid)
	binary.BigEndian.PutUint32(b[8:], it.index)
	binary.BigEndian.PutUint64(b[12:], it.counter)
	binary.BigEndian.PutUint64(b[20:], uint64(it.made))
	return s.seal.seal(kindIterator, append(b, it.stream...))
}

func (s *Server) openIterator(text string) (iterator, error) {
	b, ok := s.seal.open(kindIterator, text)
	if !ok || len(b) < 28 {
		return iterator{}, invalid("Invalid ShardIterator.")
	}
	return iterator{
		uid:     binary.BigEndian.Uint64(b),
		index:   binary.BigEndian.Uint32(b[8:]),
		counter: binary.BigEndian.Uint64(b[12:]),
		made:    int64(binary.BigEndian.Uint64(b[20:])),
		stream:  string(b[28:]),
	}, nil
}

// tokenLife is how long a NextToken may be used (API_ListShards.html).
const tokenLife = 300 * time.Second

// token is where a listing goes on.
type token struct {
	Stream string       `json:",omitempty"`
	UID    uint64       `json:",omitempty"`
	After  string       // last id or name listed
	Filter *shardFilter `json:",omitempty"`
	Made   int64        // ms
}

func (s *Server) sealToken(kind byte, t token) string {
	b, _ := json.Marshal(t) // strings and numbers: can't fail
	return s.seal.seal(kind, b)
}

func (s *Server) openToken(kind byte, text string, now time.Time) (token, error) {
	var t token
	b, ok := s.seal.open(kind, text)
	if !ok || json.Unmarshal(b, &t) != nil {
		return t, invalid("Invalid NextToken.")
	}
	if now.Sub(time.UnixMilli(t.Made)) > tokenLife {
		return t, refuse("ExpiredNextTokenException", "NextToken has expired: it was made more than %d seconds ago.", int(tokenLife.Seconds()))
	}
	return t, nil
}
