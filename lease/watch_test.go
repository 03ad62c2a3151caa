package lease

import (
	"strings"
	"testing"
	"time"
)

// look is one look at the tables, seconds after the first.
type look struct {
	at     int
	g      Generation
	leases []Lease
	want   Judgement
	note   string
}

// R22: a live KCL 3 fleet is told from one that has stopped by what changes.
func TestWatch(t *testing.T) {
	lock := func(version string) Lock {
		return Lock{Table: "app", Owner: "kcl-1", Version: version, Lease: 120 * time.Second}
	}
	released := lock("v9")
	released.Released = true
	foreign := func(counter int64) []Lease {
		return []Lease{{Key: "s:0", Owner: "kcl-2", Counter: counter, Checkpoint: "1", Foreign: true}}
	}
	handedOver := func(counter int64) []Lease {
		return []Lease{{Key: "s:9", Owner: "kcl-2", CheckpointOwner: "kcl-1", Counter: counter, Checkpoint: "1", Foreign: true}}
	}
	ours := []Lease{
		{Key: "s:0", Owner: "kinetl-1", Counter: 3, Checkpoint: "1"},
		{Key: "s:1", Checkpoint: "1", Sink: Sink{ID: "x"}},
		{Key: "s:2", Checkpoint: ShardEnd, Owner: "kcl-2", Foreign: true},
	}
	threeX := "CLIENT_VERSION_3X"
	for name, looks := range map[string][]look{
		"an empty table": {{0, Generation{}, nil, Clear, ""}},
		"KCL 2 at work":  {{0, Generation{}, foreign(1), Clear, ""}, {60, Generation{}, foreign(2), Clear, ""}},
		"KCL 3 with the algorithms of KCL 2": {
			{0, Generation{Index: true, Metrics: true, Client: ClientUpgrade}, foreign(1), Clear, ""},
			{60, Generation{Index: true, Metrics: true, Client: ClientUpgrade}, foreign(2), Clear, ""},
			{120, Generation{Index: true, Client: threeX}, foreign(3), Live, "kcl-2 renews"},
		},
		"rolled back, with a lock left behind": {
			{0, Generation{Client: Client2X, Locks: []Lock{lock("v1")}}, foreign(1), Clear, ""},
			{60, Generation{Client: Client2X, Locks: []Lock{lock("v1")}}, foreign(2), Clear, ""},
		},
		"rolled back, what is left can't be read": {
			{0, Generation{Metrics: true, Unreadable: []string{"x"}}, append(handedOver(1), foreign(1)...), Clear, ""},
			{60, Generation{Metrics: true, Unreadable: []string{"x"}}, append(handedOver(1), foreign(2)...), Clear, ""},
		},
		"a leader": {
			{0, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v1")}}, foreign(1), Unknown, "leader lock of kcl-1"},
			{30, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v2")}}, foreign(1), Live, "worker kcl-1 holds the leader lock in table app"},
		},
		"a leader beside kinetl's leases": {
			{0, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v1")}}, ours, Clear, ""},
			{60, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v2")}}, ours, Live, "kcl-1"},
		},
		"a fleet between two leaders": {
			{0, Generation{Index: true, Client: threeX, Locks: []Lock{released}}, foreign(1), Unknown, ""},
			{5, Generation{Index: true, Client: threeX, Locks: []Lock{released}}, foreign(2), Live, "kcl-2 renews"},
		},
		"coordinator state that may not be read": {
			{0, Generation{Index: true, Unreadable: []string{"table app-CoordinatorState: access denied"}}, foreign(1), Unknown, "access denied"},
			{5, Generation{Index: true, Unreadable: []string{"table app-CoordinatorState: access denied"}}, foreign(2), Live, "access denied"},
		},
		"coordinator state that may not be read, of no KCL 3": {
			{0, Generation{Unreadable: []string{"table app-CoordinatorState: access denied"}}, foreign(1), Clear, "access denied"},
		},
		"a hand-off": {
			{0, Generation{Index: true}, handedOver(1), Unknown, ""},
			{5, Generation{Index: true}, handedOver(2), Live, "lease s:9 is being handed over"},
		},
		"a fleet that stopped": {
			{0, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v1")}}, foreign(1), Unknown, ""},
			{5, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v1")}}, foreign(1), Unknown, ""},
			{39, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v1")}}, foreign(1), Unknown, ""},
			{40, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v1")}}, foreign(1), Clear, "has stopped"},
			{100, Generation{Index: true, Client: threeX, Locks: []Lock{lock("v2")}}, foreign(1), Live, "kcl-1"},
		},
		"a fleet that stopped in a hand-off": {
			{0, Generation{Index: true}, handedOver(1), Unknown, ""},
			{40, Generation{Index: true}, handedOver(1), Clear, "has stopped"},
		},
		"a lock beside workers of KCL 2 waits for the lock's own lease": {
			{0, Generation{Locks: []Lock{lock("v1")}}, foreign(1), Unknown, ""},
			{60, Generation{Locks: []Lock{lock("v1")}}, foreign(2), Unknown, ""},
			{119, Generation{Locks: []Lock{lock("v1")}}, foreign(3), Unknown, ""},
			{120, Generation{Locks: []Lock{lock("v1")}}, foreign(4), Clear, ""},
		},
		"KCL 3 that has made no lease yet": {
			{0, Generation{Index: true, Locks: []Lock{lock("v1")}}, nil, Unknown, ""},
			{30, Generation{Index: true, Locks: []Lock{lock("v2")}}, nil, Live, "kcl-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w Watch
			for _, l := range looks {
				v := w.Judge(second(1000+l.at), l.g, l.leases)
				if v.Judgement != l.want || !strings.Contains(v.Note, l.note) || (v.Err() != nil) != (l.want == Live) {
					t.Fatalf("at %d s: got %+v, want %v and %q", l.at, v, l.want, l.note)
				}
				if v.Judgement == Unknown && (v.Wait <= 0 || v.Wait > v.Left || v.Left > lockLease) {
					t.Errorf("at %d s: wait %s, left %s", l.at, v.Wait, v.Left)
				}
			}
		})
	}
}

// A KCL 3 fleet that starts beside kinetl is noticed a heartbeat of its leader's after the
// first look that sees the lock, not a minute after it; the lock of one that has stopped
// is looked at once more, and then every minute.
func TestWatchLooksAgainAfterAHeartbeat(t *testing.T) {
	ours := []Lease{{Key: "s:0", Owner: "kinetl-1", Counter: 3, Checkpoint: "1"}}
	lock := func(version string) Generation {
		return Generation{Index: true, Locks: []Lock{{Table: "app", Owner: "kcl-1", Version: version, Lease: 40 * time.Second}}}
	}
	second := func(n int) time.Time { return time.Unix(int64(n), 0) }
	var live, dead Watch
	for _, w := range []*Watch{&live, &dead} {
		if v := w.Judge(second(0), Generation{}, ours); v.Judgement != Clear || v.Wait != 0 {
			t.Fatalf("without KCL 3: %+v", v)
		}
		if v := w.Judge(second(60), lock("v1"), ours); v.Judgement != Clear || v.Wait < 10*time.Second || v.Wait > 20*time.Second {
			t.Fatalf("a lock that has come: %+v, want another look after its heartbeat of 10 s", v)
		}
	}
	if v := live.Judge(second(75), lock("v2"), ours); v.Judgement != Live {
		t.Errorf("a heartbeat later: %+v", v)
	}
	if v := dead.Judge(second(75), lock("v1"), ours); v.Judgement != Clear || v.Wait != 0 {
		t.Errorf("a lock that stands still: %+v", v)
	}
}

// The refusal names the worker and says what to do, in one line.
func TestVerdictOfALiveFleet(t *testing.T) {
	err := Verdict{Judgement: Live, Note: "worker kcl-1 holds the leader lock"}.Err()
	if err == nil || !strings.Contains(err.Error(), "kcl-1") || !strings.Contains(err.Error(), "stop every KCL 3 worker") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}
