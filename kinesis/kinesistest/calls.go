package kinesistest

import (
	"sync"
	"time"
)

// Call is one request that the server received.
type Call struct {
	Op     string // action, "GetRecords"
	Stream string // name, when the request or its iterator names one
	Shard  string // id, when the request or its iterator names one
	N      int    // 1 for the first call of this action
	At     time.Time
	CBOR   bool // else JSON

	// What came of it; empty while a Fault's Match looks at the call.
	Code    string // error code, "" for success
	Records int    // records returned or stored
	Faulty  bool   // a Fault took part
}

// maxLoggedCalls bounds the memory of a server that runs for days; counts go on.
const maxLoggedCalls = 10000

type callLog struct {
	mu     sync.Mutex
	calls  []Call
	at     int // of the oldest, once the log is full
	counts map[string]int
}

// number counts a call of an action.
func (l *callLog) number(op string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[op]++
	return l.counts[op]
}

func (l *callLog) add(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) < maxLoggedCalls {
		l.calls = append(l.calls, c)
		return
	}
	l.calls[l.at] = c
	l.at = (l.at + 1) % maxLoggedCalls
}

// Calls are the latest 10,000 answered calls, in the order in which they ended.
func (s *Server) Calls() []Call {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return append(append([]Call{}, s.log.calls[s.log.at:]...), s.log.calls[:s.log.at]...)
}

// Count is how many calls of an action began so far, those that faults met included.
func (s *Server) Count(op string) int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.counts[op]
}
