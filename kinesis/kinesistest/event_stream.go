package kinesistest

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

const (
	typeEvents = "application/vnd.amazon.eventstream"

	// subscriptionBeat is how often an idle subscription has an empty event. The
	// service sends one every few seconds (redpanda-data/connect#4724); how many is
	// not documented. The first comes at once.
	subscriptionBeat = 5 * time.Second

	// What an event holds at most is not documented; a larger record comes alone.
	maxEventBytes   = 1 << 20
	maxEventRecords = 10000
)

// eventStream is the answer of SubscribeToShard: frames of
// application/vnd.amazon.eventstream, first an initial-response, then events, whose
// payload is JSON whatever the format of the request.
//
// An event has the records that came, or none when nothing came for a while; a
// ContinuationSequenceNumber, which moves on without records too; and
// MillisBehindLatest. The event that reaches the end of a closed shard has its
// ChildShards and no ContinuationSequenceNumber, and is the last. A subscription that
// another call takes over, and one whose consumer or stream is deleted, ends with an
// exception; one that reaches its age ends without anything.
type eventStream struct {
	server   *Server
	stream   *stream
	shard    *shard
	consumer *consumer
	of       *subscriptions
	sub      *subscription
	from     uint64 // counter of the next record
	beat     time.Time
	fault    streamFault
	gone     <-chan struct{}
}

// step is what an event stream does next: send a payload, end, or wait.
type step struct {
	payload []byte
	refusal error // ends with an exception
	last    bool  // ends after the payload, if there is one
	until   time.Time
	woken   <-chan struct{}
}

func (e *eventStream) write(w http.ResponseWriter, _ protocol) error {
	defer e.close()
	w.Header().Set("Content-Type", typeEvents)
	out := frames{w: w, encoder: eventstream.NewEncoder()}
	if err := out.event("initial-response", []byte("{}")); err != nil {
		return err
	}
	for sent := 0; ; {
		if e.fault.strikes(sent) {
			if ends, err := e.fault.strike(e, out); ends {
				return err
			}
		}
		next := e.next(e.server.now())
		switch {
		case next.refusal != nil:
			return out.exception(next.refusal)
		case next.payload != nil:
			if err := out.event("SubscribeToShardEvent", next.payload); err != nil {
				return err
			}
			sent++
		case !next.last:
			if !e.wait(next) {
				return nil
			}
		}
		if next.last {
			return nil
		}
	}
}

// close forgets the subscription, if no other call has taken it over.
func (e *eventStream) close() {
	e.stream.mu.Lock()
	defer e.stream.mu.Unlock()
	if e.of.current == e.sub {
		e.of.current = nil
	}
}

// next decides under the stream's lock.
func (e *eventStream) next(now time.Time) step {
	st, sh := e.stream, e.shard
	st.mu.Lock()
	defer st.mu.Unlock()
	st.settle(now)
	switch {
	case e.of.current != e.sub:
		return step{refusal: refuse("ResourceInUseException", "Another subscription took over for consumer %s and shard %s.", e.consumer.arn, sh.id())}
	case st.status == "" || st.status == statusDeleting:
		return step{refusal: e.server.noStream(st.name)}
	case e.consumer.status != statusActive:
		return step{refusal: refuse("ResourceNotFoundException", "Consumer %s not found.", e.consumer.arn)}
	case st.expired(sh, now):
		return step{refusal: st.noShard(sh.id())}
	case !now.Before(e.sub.ends):
		return step{last: true}
	case !e.server.opts.NoLimits && now.Before(e.of.free):
		return st.idle(minTime(e.of.free, e.sub.ends))
	}
	st.trim(sh, now)
	e.from = max(e.from, sh.records.oldest)
	out, size := st.page(sh, e.from, maxEventRecords, maxEventBytes, now)
	if e.fault.noEnd {
		out.childShards = nil
	}
	if out.count == 0 && out.childShards == nil && now.Before(e.beat) {
		return st.idle(minTime(e.beat, e.sub.ends))
	}
	e.of.free = now.Add(time.Duration(size) * time.Second / readBytesPerSecond)
	e.beat = now.Add(subscriptionBeat)
	return e.event(out, now)
}

func (e *eventStream) event(out *getRecordsOutput, now time.Time) step {
	e.from += uint64(out.count)
	continuation, last := "", out.childShards != nil
	switch {
	case last:
		if e.fault.noChildren {
			out.childShards = []childShard{}
		}
	case out.count > 0:
		entry, _ := e.shard.records.at(e.from - 1)
		continuation = entry.SequenceNumber
	default:
		continuation = makeSequence(e.shard.created, e.shard.index, e.from-1, now.Unix()).String()
	}
	payload, err := out.appendJSON(nil, "ContinuationSequenceNumber", continuation)
	return step{payload: payload, refusal: err, last: last}
}

func (st *stream) idle(at time.Time) step {
	if st.watch == nil {
		st.watch = make(chan struct{})
	}
	return step{until: at, woken: st.watch}
}

// wait waits for what a step waits for, and reports whether anybody still listens.
func (e *eventStream) wait(s step) bool {
	left := s.until.Sub(e.server.now())
	if e.server.ownClock {
		left = min(left, 10*time.Millisecond) // the clock may jump
	}
	timer := time.NewTimer(max(left, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.woken:
	case <-e.sub.taken:
	case <-e.gone:
		return false
	case <-e.server.closing:
		return false
	}
	return true
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// frames writes frames, each at once.
type frames struct {
	w       http.ResponseWriter
	encoder *eventstream.Encoder
}

func (f frames) event(kind string, payload []byte) error {
	return f.send(payload, ":message-type", "event", ":event-type", kind, ":content-type", typeJSON)
}

func (f frames) exception(err error) error {
	e := asAPIError(err)
	payload, err := json.Marshal(map[string]string{"message": e.message})
	if err != nil {
		return err
	}
	return f.send(payload, ":message-type", "exception", ":exception-type", e.code, ":content-type", typeJSON)
}

func (f frames) send(payload []byte, headers ...string) error {
	m := eventstream.Message{Payload: payload}
	for i := 0; i < len(headers); i += 2 {
		m.Headers.Set(headers[i], eventstream.StringValue(headers[i+1]))
	}
	if err := f.encoder.Encode(f.w, m); err != nil {
		return err
	}
	return f.flush()
}

func (f frames) flush() error {
	err := http.NewResponseController(f.w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}
