package kinesistest

import (
	"net/http"
	"sync"
	"time"
)

// Fault makes calls go wrong. Empty fields match every call; of those that match,
// the first After are spared and the next Times (0: all) are struck.
type Fault struct {
	Op     string // "GetRecords"
	Stream string // name
	Shard  string // id; of GetRecords, GetShardIterator, SubscribeToShard, SplitShard and MergeShards
	Match  func(*Call) bool
	After  int
	Times  int
	Do     Action
}

// Action is what a Fault does to a call. The zero Action does nothing.
type Action struct {
	delay     time.Duration
	fail      *apiError
	lose      bool
	emptyPage bool
	failPuts  int
	stream    streamFault
}

// Throttle refuses the call with ProvisionedThroughputExceededException.
func Throttle() Action {
	return Fail(http.StatusBadRequest, "ProvisionedThroughputExceededException", "Rate exceeded.")
}

// Fail answers with a status, an error code and a message and does nothing else.
// The service's own: 400 with the exceptions of the action, 500 InternalFailure,
// 503 ServiceUnavailable.
func Fail(status int, code, message string) Action {
	return Action{fail: &apiError{status, code, message}}
}

// LoseAnswer does what was asked and cuts the connection instead of answering.
func LoseAnswer() Action { return Action{lose: true} }

// Delay holds the call for a time of the machine's clock before anything is done,
// or until the client gives up or the server is closed.
func Delay(d time.Duration) Action { return Action{delay: d} }

// EmptyPage makes GetRecords return no records, an iterator for the same place and
// a lag above zero, as the service may at any time.
func EmptyPage() Action { return Action{emptyPage: true} }

// PartialPut makes PutRecords throttle its first n records and store the others.
func PartialPut(n int) Action { return Action{failPuts: n} }

type faults struct {
	mu   sync.Mutex
	list []*armed
}

type armed struct {
	Fault
	seen int
}

// Fault adds a fault and returns the function that removes it. Several faults may
// strike one call: delays add up, and the first error wins.
func (s *Server) Fault(f Fault) (remove func()) {
	a := &armed{Fault: f}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, a)
	return func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		for i, o := range s.faults.list {
			if o == a {
				s.faults.list = append(s.faults.list[:i:i], s.faults.list[i+1:]...)
				return
			}
		}
	}
}

// strike joins the actions of all faults that meet the call.
func (f *faults) strike(c *Call) (do Action) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.list {
		if !a.meets(c) {
			continue
		}
		c.Faulty = true
		do.delay += a.Do.delay
		if do.fail == nil {
			do.fail = a.Do.fail
		}
		do.lose = do.lose || a.Do.lose
		do.emptyPage = do.emptyPage || a.Do.emptyPage
		do.failPuts = max(do.failPuts, a.Do.failPuts)
		if do.stream.strike == nil {
			do.stream.strike, do.stream.after = a.Do.stream.strike, a.Do.stream.after
		}
		do.stream.noEnd = do.stream.noEnd || a.Do.stream.noEnd
		do.stream.noChildren = do.stream.noChildren || a.Do.stream.noChildren
	}
	return do
}

func (a *armed) meets(c *Call) bool {
	if a.Op != "" && a.Op != c.Op || a.Stream != "" && a.Stream != c.Stream || a.Shard != "" && a.Shard != c.Shard {
		return false
	}
	if a.Match != nil && !a.Match(c) {
		return false
	}
	a.seen++
	return a.seen > a.After && (a.Times == 0 || a.seen <= a.After+a.Times)
}

// pause waits out a delay.
func (s *Server) pause(gone <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-gone:
	case <-s.closing:
	}
}
