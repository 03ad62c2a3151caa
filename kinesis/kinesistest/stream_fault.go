package kinesistest

import "net/http"

// streamFault is what goes wrong with an event stream, after so many events.
type streamFault struct {
	after  int
	strike func(e *eventStream, out frames) (ends bool, err error) // nil: nothing

	noEnd, noChildren bool
}

func (f *streamFault) strikes(sent int) bool { return f.strike != nil && sent >= f.after }

// Silence makes SubscribeToShard fall silent after some events, with the connection
// left open, as a half-open one looks from the other side.
func Silence(after int) Action {
	return Action{stream: streamFault{after: after, strike: func(e *eventStream, _ frames) (bool, error) {
		select {
		case <-e.gone:
		case <-e.server.closing:
		}
		return true, nil
	}}}
}

// EndStream makes SubscribeToShard end after some events as if its time were over.
func EndStream(after int) Action {
	return Action{stream: streamFault{after: after, strike: func(*eventStream, frames) (bool, error) { return true, nil }}}
}

// CutStream makes SubscribeToShard cut the connection inside a frame, after some events.
func CutStream(after int) Action {
	return Action{stream: streamFault{after: after, strike: func(_ *eventStream, out frames) (bool, error) {
		half := &halfWriter{ResponseWriter: out.w}
		out.w = half
		if err := out.event("SubscribeToShardEvent", []byte(`{"Records":[],"MillisBehindLatest":0}`)); err != nil {
			return true, err
		}
		out.w = half.ResponseWriter
		if err := out.flush(); err != nil {
			return true, err
		}
		panic(http.ErrAbortHandler)
	}}}
}

// halfWriter loses all but the first bytes.
type halfWriter struct {
	http.ResponseWriter
	written int
}

func (h *halfWriter) Write(b []byte) (int, error) {
	const half = 50
	n := min(len(b), half-h.written)
	h.written += n
	if n > 0 {
		if _, err := h.ResponseWriter.Write(b[:n]); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// FailStream makes SubscribeToShard end with an exception in the event stream after
// some events: ResourceInUseException, ResourceNotFoundException, InternalFailureException,
// or one of those that begin with KMS.
func FailStream(after int, code, message string) Action {
	return Action{stream: streamFault{after: after, strike: func(_ *eventStream, out frames) (bool, error) {
		return true, out.exception(refuse(code, "%s", message))
	}}}
}

// FalseEnd makes SubscribeToShard claim the end of an open shard after some events, by
// an event without a continuation number and without children.
func FalseEnd(after int) Action {
	return Action{stream: streamFault{after: after, strike: func(e *eventStream, out frames) (bool, error) {
		e.stream.mu.Lock()
		open := e.shard.closed.IsZero()
		e.stream.mu.Unlock()
		if !open {
			return false, nil
		}
		return true, out.event("SubscribeToShardEvent", []byte(`{"Records":[],"MillisBehindLatest":0,"ChildShards":[]}`))
	}}}
}

// NoChildren makes SubscribeToShard name no children in the event that ends a shard.
func NoChildren() Action { return Action{stream: streamFault{noChildren: true}} }

// NoEnd makes SubscribeToShard go on with empty events at the end of a closed shard,
// as npm kinesis-local 0.6.2 does.
func NoEnd() Action { return Action{stream: streamFault{noEnd: true}} }
