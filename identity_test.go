package kinetl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// TestIdentity: an id is the SHA-256 that R1 says, whatever the lengths of its parts,
// and whether or not the blocks that a shard's records share are hashed once.
func TestIdentity(t *testing.T) {
	for _, plain := range []bool{false, true} {
		var d identity
		for stream := range 140 {
			shard := ShardID{Stream: strings.Repeat("s", stream), Created: 1700000000, Shard: "shardId-000000000002"}
			d.enter(&shard)
			if d.hash.plain {
				t.Fatal("crypto/sha256 no longer marshals its state as expected; ids are right and slower")
			}
			d.hash.plain = plain
			for sequence := range 70 {
				rec := Record{Sequence: strings.Repeat("7", sequence), Sub: uint64(stream * sequence)}
				sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s\n%s\n%d", shard.Stream, shard.Created, shard.Shard, rec.Sequence, rec.Sub))
				if got, want := string(d.append([]byte("x"), &rec)), "x"+hex.EncodeToString(sum[:16]); got != want {
					t.Fatalf("stream of %d bytes, sequence number of %d: %s, want %s", stream, sequence, got, want)
				}
			}
		}
	}
}

func BenchmarkIdentity(b *testing.B) {
	var d identity
	d.enter(&ShardID{Stream: "arn:aws:kinesis:eu-west-1:000000000000:stream/orders", Created: 1700000000, Shard: "shardId-000000000002"})
	rec := Record{Sequence: "49590338271490256608559692538361571095921575989136588898"}
	var id []byte
	for b.Loop() {
		id = d.append(id[:0], &rec)
	}
}
