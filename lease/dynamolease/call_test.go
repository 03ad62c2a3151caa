package dynamolease

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

// first answers the first n requests with a refusal; n < 0: all.
func first(n int64, status int, kind string) func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error) {
	var seen atomic.Int64
	return func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if i := seen.Add(1); n < 0 || i <= n {
			return refusal(status, kind), nil
		}
		return send()
	}
}

// Throttled requests were not carried out: they are repeated, writes as well.
func TestThrottling(t *testing.T) {
	s, w := wired(t, dynamotest.Dynalite(t), Options{})
	l := create(t, s, row("s:1"))
	for _, kind := range []string{"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"} {
		w.reset(first(3, 400, kind))
		got, err := s.Update(t.Context(), l, l)
		if err != nil || got.Counter != l.Counter+1 || w.count()["UpdateItem"] != 4 {
			t.Errorf("%s: %+v, %v, requests %v", kind, got, err, w.count())
		}
		l = got
		w.reset(first(2, 400, kind))
		if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%s: list %v, %v", kind, all, err)
		}
	}
}

// Within the bound of a call, that is: who keeps a lease must know in time. The error
// says why, and is not taken for a lost lease.
func TestThrottledForLong(t *testing.T) {
	s, w := wired(t, dynamotest.Dynalite(t), Options{})
	l := create(t, s, row("s:1"))
	s.o.Call = 200 * time.Millisecond
	w.reset(first(-1, 400, "ThrottlingException"))
	began := time.Now()
	_, err := s.Update(t.Context(), l, l)
	if took := time.Since(began); took < s.o.Call/2 || took > 20*s.o.Call {
		t.Errorf("it took %s", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lease.ErrBusy) || errors.Is(err, lease.ErrLost) || !strings.Contains(err.Error(), "ThrottlingException") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if n := w.count()["UpdateItem"]; n < 2 || n > 50 {
		t.Errorf("%d attempts", n)
	}
}

// The bound of a call is a third of the failover time, whatever is asked for: a
// renewal that hangs must leave time for another.
func TestTheBoundOfACall(t *testing.T) {
	for _, tt := range []struct{ failover, call, want time.Duration }{
		{0, 0, 10 * time.Second / 3}, {30 * time.Second, 0, 10 * time.Second}, {30 * time.Second, time.Second, time.Second}, {3 * time.Second, time.Minute, time.Second},
	} {
		if got := (Options{Failover: tt.failover, Call: tt.call}).withDefaults().Call; got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
	s, w := wired(t, dynamotest.Dynalite(t), Options{})
	s.o.Call = 100 * time.Millisecond
	w.reset(func(_ string, r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
		<-r.Context().Done() // a connection that hangs
		return nil, r.Context().Err()
	})
	if _, err := s.List(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A write that may have happened is not repeated by the store: it would meet itself.
// The row tells what became of it.
func TestLostAnswers(t *testing.T) {
	s, w := wired(t, dynamotest.Dynalite(t), Options{})
	l := create(t, s, row("s:1"))
	lose := func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if resp, err := send(); err == nil {
			resp.Body.Close()
		}
		return nil, errors.New("connection reset by peer")
	}
	w.reset(lose)
	next := l.TakenBy("me")
	if _, err := s.Update(t.Context(), l, next); err == nil || errors.Is(err, lease.ErrLost) || w.count()["UpdateItem"] != 1 {
		t.Errorf("got %v, requests %v", err, w.count())
	}
	w.reset(nil)
	if _, err := s.Update(t.Context(), l, next); !errors.Is(err, lease.ErrLost) {
		t.Errorf("repeated: %v", err)
	}
	if got, found, err := s.Get(t.Context(), l.Key); err != nil || !found || got.Owner != "me" || got.Counter != l.Counter+1 {
		t.Errorf("the row: %+v, %v, %v", got, found, err)
	}
	w.reset(first(1, 500, "InternalServerError"))
	if err := s.Create(t.Context(), row("s:2")); err == nil || errors.Is(err, lease.ErrLost) || w.count()["PutItem"] != 1 {
		t.Errorf("a server that fails: %v, requests %v", err, w.count())
	}
	w.reset(first(1, 500, "InternalServerError")) // reads are repeated
	if _, found, err := s.Get(t.Context(), l.Key); err != nil || !found || w.count()["GetItem"] != 2 {
		t.Errorf("a read: %v, requests %v", err, w.count())
	}
}

// However many leases renew at once, no more requests run than are allowed: the
// others wait for a connection instead of making one.
func TestConcurrency(t *testing.T) {
	s, w := wired(t, dynamotest.Dynalite(t), Options{Concurrency: 5})
	w.reset(nil)
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if _, _, err := s.Get(t.Context(), "s:1"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.most != 5 {
		t.Errorf("%d ran at once", w.most)
	}
}
