package kinetl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/lease"
)

// open is the incidents on all leases.
func (r *rig) open() []kinetl.Incident {
	all, _ := r.leases.List(r.t.Context())
	return kinetl.AllIncidents(all)
}

func kindsOf(list []kinetl.Incident) (out []kinetl.IncidentKind) {
	for _, inc := range list {
		out = append(out, inc.Kind)
	}
	return out
}

// capped adds columns of somebody else's that hold booleans only.
func (r *rig) capped(names ...string) {
	for _, name := range names {
		r.memory.AddColumn("orders", kinetl.Column{Name: name, Class: kinetl.Bool, Cap: true})
	}
}

// R28: values that do not fit a capped column are dead letters, and one incident per
// column, whichever shards meet it, in whichever run. Nothing halts for it.
func TestACappedColumnIsOneIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.capped("x", "y")
		r.putText(0, `{"id":1,"x":true}`, `{"id":2,"x":"no"}`, `{"id":3,"y":7,"x":false}`, `{"id":4}`)
		r.putText(1, `{"id":5,"X":1}`, `{"id":6,"X":2}`, `{"id":7}`)
		left, _ := r.split(0)
		r.putText(left, `{"id":8,"x":[1]}`, `{"id":9}`)

		var halted *kinetl.HaltedError
		if err := r.once(r.worker("a")); !errors.As(err, &halted) || !strings.Contains(err.Error(), "everything was loaded") {
			t.Fatalf("the run ended with %v, want the open incidents", err)
		}
		r.wantOrders(1, 4, 7, 9)
		if n := len(r.memory.Read("orders").DeadLetters); n != 5 {
			t.Errorf("%d dead letters, want 5", n)
		}
		if got := kindsOf(halted.Incidents); !slices.Equal(got, []kinetl.IncidentKind{"column_capped", "column_capped"}) {
			t.Fatalf("incidents %v, want one for each column", got)
		}
		for _, inc := range halted.Incidents {
			if inc.Halts || inc.Shard == "" || inc.Position == "" || strings.Contains(inc.Detail, "no\"") || strings.Contains(inc.Detail, "\n") {
				t.Errorf("%+v", inc)
			}
		}
		if n := r.count(kinetl.EventIncident); n != 2 {
			t.Errorf("told %d times, want once for each column", n)
		}

		// Another run meets the column in another shard: the same incident.
		time.Sleep(time.Second)
		r.putText(1, `{"id":10,"x":0}`)
		if err := r.once(r.worker("b")); !errors.As(err, &halted) || len(halted.Incidents) != 2 {
			t.Errorf("the next run ended with %v, want the same two incidents", err)
		}
		before := r.open()
		for _, inc := range before {
			if _, err := kinetl.Resolve(t.Context(), r.leases, inc.ID, kinetl.Resolution{}); err != nil {
				t.Error(err)
			}
		}
		if left := r.open(); len(left) != 0 {
			t.Errorf("resolved on one lease only: %+v", left)
		}
		if err := r.once(r.worker("c")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		r.putText(1, `{"id":11,"x":"again"}`)
		if err := r.once(r.worker("d")); !errors.As(err, &halted) || !slices.ContainsFunc(before, func(inc kinetl.Incident) bool { return inc.ID == halted.Incidents[0].ID }) {
			t.Errorf("met again after it was resolved: %v", err)
		}
	})
}

// R28: what the table refuses at commit because of a column's own type is such a
// value too, and the reason is the one that the destination gives.
func TestAValueRefusedAtCommitIsAnIncidentOfItsColumn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.memory.AddColumn("orders", kinetl.Column{Name: "day", Class: kinetl.Text, Cap: true, Native: "DATE", Why: "ask the owner"})
		r.putText(0, `{"id":1,"day":"2026-01-01"}`, `{"id":2,"day":"soon"}`, `{"id":3}`)
		p := r.worker("a")
		p.Destination = &namesColumn{r.memory.Handle(desttest.MemoryOptions{Reject: func(_ string, row desttest.Row) string {
			if row.Cells["day"] == "soon" {
				return "not a day"
			}
			return ""
		}})}
		var halted *kinetl.HaltedError
		if err := r.once(p); !errors.As(err, &halted) || len(halted.Incidents) != 1 {
			t.Fatalf("the run ended with %v", err)
		}
		if d := halted.Incidents[0].Detail; !strings.Contains(d, `column "day"`) || !strings.Contains(d, "DATE") || !strings.HasSuffix(d, "ask the owner") || strings.Contains(d, "soon") {
			t.Errorf("detail %s", d)
		}
		r.wantOrders(1, 3)
	})
}

// namesColumn is a destination that knows which column a row was refused for.
type namesColumn struct{ kinetl.Destination }

func (n *namesColumn) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	report, err := n.Destination.Commit(ctx, table, parts)
	var rejected *kinetl.RejectedError
	if errors.As(err, &rejected) {
		for i := range rejected.Rows {
			rejected.Rows[i].Column = "day"
		}
	}
	return report, err
}

// R24: an incident that halts and a notice stand side by side on a lease: neither
// hides the other, and resolving one leaves the other.
func TestANoticeBesideAHaltedShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.capped("x")
		p := r.worker("a")
		w := r.start(p)
		r.putText(0, `{"id":1,"x":"no"}`, `{"id":2}`)
		r.until("the notice is on the lease", func() bool { return r.row(0).Incident != "" })
		r.put(0, 3)
		r.until("reading goes on", r.has(2))
		w.drain(t)

		r.putText(0, `{"id":`, `{"id":4,"x":7}`, `{"id":5}`)
		time.Sleep(time.Millisecond) // or the last catch-up would be of the very instant at which b begins
		p = r.worker("b")
		p.Config.FailUndecodable = true
		var halted *kinetl.HaltedError
		if err := r.once(p); !errors.As(err, &halted) || !slices.Equal(kindsOf(halted.Incidents), []kinetl.IncidentKind{"undecodable", "column_capped"}) {
			t.Fatalf("the run ended with %v", err)
		}
		r.wantOrders(2, 3)
		if _, err := kinetl.Resolve(t.Context(), r.leases, halted.Incidents[1].ID, kinetl.Resolution{}); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("c")); !errors.As(err, &halted) || !slices.Equal(kindsOf(halted.Incidents), []kinetl.IncidentKind{"undecodable"}) {
			t.Fatalf("with the notice resolved the run ended with %v, want the shard halted still", err)
		}
		if _, err := kinetl.Resolve(t.Context(), r.leases, halted.Incidents[0].ID, kinetl.Resolution{}); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("d")); !errors.As(err, &halted) || !slices.Equal(kindsOf(halted.Incidents), []kinetl.IncidentKind{"column_capped"}) {
			t.Fatalf("the run ended with %v", err)
		}
		r.wantOrders(2, 3, 5)
	})
}

// R24: an incident is resolved while its shard's worker runs and renews the lease:
// the worker gives the shard up, takes it again and goes on by what the row says.
func TestResolveWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.putText(0, "not JSON")
		p := r.worker("a")
		p.Config.FailUndecodable = true
		// Each time a resolution would be written the owner has just renewed, at first.
		busy := &flaky{Store: r.leases}
		races := 3
		busy.hook = func(call string, l lease.Lease) fate {
			if call == "update" && races > 0 {
				races--
				if have := r.row(0); have.Owner != "" {
					if _, err := r.leases.Update(t.Context(), have, have); err != nil {
						t.Error(err)
					}
				}
			}
			return fate{}
		}
		w := r.start(p)
		r.until("the shard is halted", func() bool { return len(r.open()) == 1 })
		time.Sleep(time.Minute)
		r.do(func() { r.shards[0].records[0].Data = []byte(`{"id":1}`) })
		done, err := kinetl.Resolve(t.Context(), busy, r.open()[0].ID, kinetl.Resolution{})
		if err != nil || len(done.Leases) != 1 || done.Leases[0].Owner != "a" || done.Incident.Kind != kinetl.IncidentUndecodable {
			t.Fatalf("%+v, %v", done, err)
		}
		resolved := time.Now()
		r.until("it is read", r.has(1))
		if took := time.Since(resolved); took > 20*time.Second {
			t.Errorf("the worker went on after %s", took)
		}
		w.drain(t)
		r.wantOrders(1)
	})
}

// expires makes reading of a shard find its position expired, unless that is accepted.
func (r *rig) expires(n int) {
	r.fault = func(call string, shard kinetl.ShardID) error {
		if call != "next" || shard != shardOf("orders", n) {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		resumes := r.script.resumes[shard]
		if last := resumes[len(resumes)-1]; !last.Accepted && last.CaughtUp.IsZero() {
			return &kinetl.ExpiredError{Shard: shard, After: last.After}
		}
		return nil
	}
}

// R24: an expired position is resolved by accepting the gap. Reading goes on at the
// oldest record, and the table records the gap once, with the first part, also when
// the commit's answer is lost and the worker dies.
func TestAnAcceptedGap(t *testing.T) {
	for name, from := range map[string]kinetl.Position{"a record": kinetl.At("2", 0), "a start marker": kinetl.Oldest} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				id := shardOf("orders", 0)
				if from != kinetl.Oldest {
					r.put(0, 1, 2)
					r.wantEnd(r.startOnce("z"))
					l := r.row(0)
					idle := l
					idle.CaughtUp = time.Time{}
					if _, err := r.leases.Update(t.Context(), l, idle); err != nil {
						t.Fatal(err)
					}
				}
				r.expires(0)
				var halted *kinetl.HaltedError
				if err := r.once(r.worker("a")); !errors.As(err, &halted) || halted.Incidents[0].Kind != kinetl.IncidentExpired {
					t.Fatalf("the run ended with %v", err)
				}
				inc := halted.Incidents[0].ID
				var refused *kinetl.UnresolvableError
				if _, err := kinetl.Resolve(t.Context(), r.leases, inc, kinetl.Resolution{}); !errors.As(err, &refused) || r.row(0).Incident == "" {
					t.Fatalf("resolved without accepting the gap: %v", err)
				}
				if _, err := kinetl.Resolve(t.Context(), r.leases, inc, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
					t.Fatal(err)
				}
				r.putText(0, `{"id":8}`, `{"id":9}`)
				first := r.shards[0].records[len(r.shards[0].records)-2].Position()

				lost := false
				p := r.worker("b")
				p.Destination = r.memory.Handle(desttest.MemoryOptions{Fault: func(_ context.Context, step string) error {
					if step == "commit:done" && !lost {
						lost = true
						return errInjected
					}
					return nil
				}})
				if err := r.once(p); err != nil {
					t.Fatal(err)
				}
				gaps := r.memory.Read("orders").Gaps
				if len(gaps) != 1 || gaps[0].Shard != id || gaps[0].From != from || gaps[0].To != first || !strings.Contains(gaps[0].Reason, "expired") {
					t.Errorf("gaps %+v, want one from %s to %s", gaps, from, first)
				}
				if l := r.row(0); l.Accepted != "" {
					t.Errorf("the lease still accepts a gap after %s", l.Accepted)
				}
				if from == kinetl.Oldest {
					r.wantOrders(8, 9)
				} else {
					r.wantOrders(1, 2, 8, 9)
				}
			})
		})
	}
}

func (r *rig) startOnce(name string) *running {
	p := r.worker(name)
	p.Consumer.Config.Once = true
	return r.start(p)
}

// R24: what is accepted is the gap after one position. If the table has moved since,
// or is an older copy, the position that it has now is looked at as any other.
func TestAnAcceptedGapIsOfOnePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		r.wantEnd(r.startOnce("z"))
		l := r.row(0)
		next := l
		next.Accepted, next.CaughtUp = kinetl.At("77", 0).String(), time.Time{}
		if _, err := r.leases.Update(t.Context(), l, next); err != nil {
			t.Fatal(err)
		}
		r.expires(0)
		var halted *kinetl.HaltedError
		if err := r.once(r.worker("a")); !errors.As(err, &halted) || halted.Incidents[0].Position != "1" {
			t.Errorf("the run ended with %v", err)
		}
	})
}

// R24, R26: a shard that left its stream with unread records in it is ended by
// accepting the gap, and its children are read.
func TestAnAcceptedGapOfAShardThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		r.wantEnd(r.startOnce("z"))
		left, _ := r.split(0)
		r.put(left, 2)
		time.Sleep(25 * time.Hour)
		r.do(func() { r.shards[0].hidden = true })
		var halted *kinetl.HaltedError
		if err := r.once(r.worker("a")); !errors.As(err, &halted) || halted.Incidents[0].Kind != kinetl.IncidentExpired {
			t.Fatalf("the run ended with %v", err)
		}
		if _, err := kinetl.Resolve(t.Context(), r.leases, halted.Incidents[0].ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2)
		gaps := r.memory.Read("orders").Gaps
		if len(gaps) != 1 || gaps[0].From != kinetl.At("1", 0) || gaps[0].To != kinetl.End {
			t.Errorf("gaps %+v, want one to the end", gaps)
		}
	})
}

// R24: what can't be decided on a lease is refused with what to do instead, and
// nothing is changed; an id that is not open is told with those that are.
func TestResolveRefuses(t *testing.T) {
	for _, kind := range []kinetl.IncidentKind{kinetl.IncidentOtherSink, kinetl.IncidentNoWatermark, "of the future"} {
		store := &lease.Memory{}
		inc := kinetl.NewIncident(kind, shardOf("orders", 0), kinetl.Oldest, "x", time.Now())
		l := lease.Lease{Key: "s:1", Checkpoint: lease.TrimHorizon, Incident: fmt.Sprintf(`[{"id":%q,"kind":%q,"halts":true}]`, inc.ID, kind)}
		if err := store.Create(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		var refused *kinetl.UnresolvableError
		if _, err := kinetl.Resolve(t.Context(), store, inc.ID, kinetl.Resolution{From: kinetl.Oldest}); !errors.As(err, &refused) || refused.What == "" {
			t.Errorf("%s: %v", kind, err)
		}
		var unknown *kinetl.UnknownIncidentError
		if _, err := kinetl.Resolve(t.Context(), store, "nothing", kinetl.Resolution{From: kinetl.Oldest}); !errors.As(err, &unknown) || len(unknown.Open) != 1 {
			t.Errorf("%s: an unknown id: %v", kind, err)
		}
		if got, _, _ := store.Get(t.Context(), "s:1"); got.Counter != 0 || got.Incident != l.Incident {
			t.Errorf("%s: the lease was changed: %+v", kind, got)
		}
	}
}

// An incident that can't be read halts, and --once says so.
func TestAnUnreadableIncidentHalts(t *testing.T) {
	for _, text := range []string{"x", "{}", "[]", `[{"halts":"yes"}]`} {
		list := kinetl.OpenIncidents(lease.Lease{Key: "s:1", Incident: text})
		if len(list) != 1 || !list[0].Halts || list[0].ID == "" || list[0].Detail == "" {
			t.Errorf("%s: %+v", text, list)
		}
	}
}

func FuzzOpenIncidents(f *testing.F) {
	for _, s := range []string{"", "x", "[]", `[{"id":"1","halts":true},{"id":"2"}]`, `[{"id":"2"},{"id":"1","halts":true}]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list := kinetl.OpenIncidents(lease.Lease{Key: "s:1", Incident: text})
		if (len(list) == 0) != (text == "") {
			t.Fatalf("%q holds %d incidents", text, len(list))
		}
		for i := 1; i < len(list); i++ {
			if list[i].Halts && !list[i-1].Halts {
				t.Fatalf("%q: a notice stands before one that halts", text)
			}
		}
	})
}

// A notice is never lost to a lease that was taken away while it was being written:
// the next holder, the same worker too, tells it when it meets such a value.
func TestANoticeOnALeaseThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.capped("x")
		var deaf atomic.Bool
		p := r.worker("a")
		p.Consumer.Leases = &flaky{Store: r.leases, hook: func(call string, l lease.Lease) fate {
			return bad(call != "list" && deaf.Load())
		}}
		w := r.start(p)
		r.put(0, 1)
		r.until("it reads", r.has(1))
		deaf.Store(true)
		r.putText(0, `{"id":2,"x":"no"}`)
		r.until("the lease is lost", func() bool { return r.count(kinetl.EventLeaseLost) == 1 })
		if n := len(r.open()); n != 0 {
			t.Fatalf("%d incidents were written by a worker that can't", n)
		}
		deaf.Store(false)
		r.putText(0, `{"id":3,"x":"no"}`)
		r.until("the notice is on the lease", func() bool { return len(r.open()) == 1 })
		w.drain(t)
	})
}
