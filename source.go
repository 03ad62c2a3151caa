package kinetl

import (
	"context"
	"time"
)

// Source is what the engine reads: one stream or several, as shards. Its methods
// may be called from many goroutines. It retries what is worth retrying by itself;
// an error that it returns is final for that call.
type Source interface {
	// Shards lists every shard that the service still remembers, closed ones
	// included. With a non-zero openAt it lists only those that were open at that
	// instant, which is where a start at an instant begins.
	Shards(ctx context.Context, openAt time.Time) (Listing, error)

	// Read opens a shard. It makes no call that the first Next would not make.
	Read(ctx context.Context, shard ShardID, from Resume) (Reader, error)
}

// Listing is one consistent answer of Source.Shards.
type Listing struct {
	At     time.Time   // the service's clock when it answered (Date header)
	Shards []ShardInfo // a stream's parents before their children, as their ids sort
}

// ShardInfo is a shard as the service lists it.
type ShardInfo struct {
	ID       ShardID
	Parents  []string // shard ids, none, one (split) or two (merge); they may have left the listing
	Closed   bool     // has an ending sequence number
	FirstSeq string   // starting sequence number
	LastSeq  string   // ending sequence number, when Closed

	StartingHashKey, EndingHashKey string // decimal, inclusive; empty where the source has none
}

// Resume says where reading starts: after a position, and at which instant the
// shard is known to have been read to its tip. The instant decides whether a
// record that is gone from the stream was read before it left (R26).
type Resume struct {
	After    Position
	CaughtUp time.Time // zero: never
	Listed   time.Time // the service's clock when the shard was first listed: a read from Oldest begins no earlier
	Accepted bool      // a person gave up what expired after After: reading goes on at the oldest record there is (R24)
}

// Reader reads one shard. One goroutine uses it.
type Reader interface {
	// Ready waits until the shard's turn has come, and says how many bytes of data
	// the next fetch will probably hold: what to reserve for it (R27). Waiting
	// before the reservation keeps idle shards from holding memory.
	Ready(ctx context.Context) (bytes int64, err error)

	// Next fetches records, unpacked and in order. Polling, fan-out, iterator
	// renewal and throttling stay behind it. A fetch may hold more than Ready said.
	// Next returns
	//   - io.EOF once a closed shard's last record has been returned and the
	//     service confirmed the end (R5),
	//   - *ExpiredError when records after the resume position have left the
	//     stream unread (R26), unless the resume says that this is accepted,
	//   - *GoneError when the stream was deleted or created anew,
	//   - ctx's error when ctx ends; the reader may then be used again.
	Next(ctx context.Context) (Fetch, error)

	Close() error
}

// Fetch is what one call of Next returned. The records, with their bytes and their
// text, live until Release.
type Fetch struct {
	Records  []Record
	Bytes    int64         // payload bytes, keys included
	Lag      time.Duration // how far the read is behind the shard's tip (MillisBehindLatest)
	CaughtUp time.Time     // when Lag is zero: the instant the answered request was sent; else zero
	Release  func()        // may be nil, and need not be called
}
