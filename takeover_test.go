package kinetl_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
)

// create makes leases as somebody else left them.
func (r *rig) create(leases ...lease.Lease) {
	r.t.Helper()
	for _, l := range leases {
		if err := r.leases.Create(r.t.Context(), l); err != nil {
			r.t.Fatal(err)
		}
	}
}

// write changes a lease as another system does: what kinetl noted stays.
func (r *rig) write(key string, change func(*lease.Lease)) {
	r.t.Helper()
	l, found, err := r.leases.Get(r.t.Context(), key)
	if err != nil || !found {
		r.t.Fatalf("lease %s: %v, %v", key, found, err)
	}
	next := l
	change(&next)
	if _, err := r.leases.Update(r.t.Context(), l, next); err != nil {
		r.t.Fatal(err)
	}
}

// wantHalted checks how a run with Once ended, and that the incidents say what to do.
func (r *rig) wantHalted(err error, kinds ...kinetl.IncidentKind) []kinetl.Incident {
	r.t.Helper()
	var halted *kinetl.HaltedError
	if !errors.As(err, &halted) || !slices.Equal(kindsOf(halted.Incidents), kinds) {
		r.t.Fatalf("the run ended with %v, want incidents %v", err, kinds)
	}
	for _, inc := range halted.Incidents {
		if !inc.Halts || inc.Detail == "" || strings.Contains(inc.Detail, "\n") || inc.Shard == "" {
			r.t.Errorf("%+v", inc)
		}
	}
	return halted.Incidents
}

func shardName(n int) string { return shardOf("", n).Shard }

// R23: a table whose keys are shard ids is used as it is: leases are taken where KCL
// left off, those that come get keys of the same form, and each says from then on
// which stream it is of.
func TestSingleStreamKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1, 2, 3)
		r.put(1, 4)
		r.create(lease.Lease{Key: shardName(0), Checkpoint: "2", Counter: 7}, lease.Lease{Key: shardName(1), Checkpoint: lease.TrimHorizon})
		left, _ := r.split(0)
		r.put(left, 5)
		r.do(func() { r.shards[left].info.StartingHashKey, r.shards[left].info.EndingHashKey = "0", "9" })
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(3, 4, 5)
		all, _ := r.leases.List(t.Context())
		if len(all) != 4 {
			t.Errorf("%d leases", len(all))
		}
		for _, l := range all {
			if l.Stream != "arn:aws:kinesis:eu-west-1:123456789012:stream/orders@1700000000" {
				t.Errorf("lease %s is of stream %q", l.Key, l.Stream)
			}
			if l.Key == shardName(left) && (l.StartingHashKey != "0" || l.EndingHashKey != "9") {
				t.Errorf("lease %s covers %s to %s", l.Key, l.StartingHashKey, l.EndingHashKey)
			}
		}
		time.Sleep(time.Second) // later than the last catch-up
		r.put(1, 6)
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(3, 4, 5, 6)
	})
}

// R23: such a table serves one stream, and a table has one form of keys.
func TestKeysThatServeOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.add("payments")
		r.put(0, 1)
		r.create(lease.Lease{Key: shardName(0), Checkpoint: lease.TrimHorizon})
		err := r.once(r.worker("a"))
		if err == nil || !strings.Contains(err.Error(), "orders, payments") || !strings.Contains(err.Error(), "name one stream") {
			t.Errorf("two streams: %v", err)
		}
		r.shards = r.shards[:1]
		r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: lease.TrimHorizon})
		if err := r.once(r.worker("a")); err == nil || !strings.Contains(err.Error(), "single-stream") {
			t.Errorf("both forms: %v", err)
		}
		r.wantOrders()
	})
}

// R1, R18: the leases of a single-stream table are of a stream that was deleted and
// created anew. Nothing of them is used, nor made beside them; one incident says so,
// and its resolution deletes them.
func TestLeasesOfAnotherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.put(0, 1)
		r.put(2, 2)
		old := lease.StreamID(shardOf("orders", 0).Stream, 1600000000)
		r.create(
			lease.Lease{Key: shardName(0), Checkpoint: lease.ShardEnd, Stream: old, Sink: lease.Sink{ID: "memory", Table: "orders", Position: string(kinetl.End)}},
			lease.Lease{Key: shardName(1), Checkpoint: "900", Parents: []string{shardName(0)}, Stream: old, Sink: lease.Sink{ID: "memory", Table: "orders", Position: string(kinetl.At("900", 0))}},
		)
		incs := r.wantHalted(r.once(r.worker("a")), kinetl.IncidentOtherStream)
		if d := incs[0].Detail; !strings.Contains(d, "@1600000000") || !strings.Contains(d, "@1700000000") {
			t.Errorf("detail %s", d)
		}
		if all, _ := r.leases.List(t.Context()); len(all) != 2 {
			t.Errorf("leases were made beside those of another stream: %+v", all)
		}
		r.wantOrders()
		var refused *kinetl.UnresolvableError
		if _, err := kinetl.Resolve(t.Context(), r.leases, incs[0].ID, kinetl.Resolution{}); !errors.As(err, &refused) {
			t.Errorf("resolved without saying that the stream is gone: %v", err)
		}
		if _, err := kinetl.Resolve(t.Context(), r.leases, incs[0].ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("b")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2)
	})
}

// R18: KCL's leases name the stream by a creation epoch that the application gave. One
// that the stream does not have is an error, not a start from the beginning.
func TestAWrongCreationEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2)
		id := shardOf("orders", 0)
		id.Created = 1
		r.create(lease.Lease{Key: kinetl.LeaseKey(id), Checkpoint: "1"})
		err := r.once(r.worker("a"))
		if err == nil || !strings.Contains(err.Error(), "creation epoch") || !strings.Contains(err.Error(), "1700000000") {
			t.Errorf("the run ended with %v", err)
		}
		r.wantOrders()
	})
}

// R18: what another system wrote on a lease and can't be of its shard is an incident,
// and nothing of the shard is read. The others go on. The resolution says where to
// begin; a lease that somebody corrects needs none.
func TestCheckpointsThatCantBe(t *testing.T) {
	for name, spoil := range map[string]func(l *lease.Lease){
		"before the shard": func(l *lease.Lease) { l.Checkpoint = "3" },
		"after its end":    func(l *lease.Lease) { l.Checkpoint = "77" },
		"no number":        func(l *lease.Lease) { l.Checkpoint = "SOON" },
		"a time that KCL did not write down": func(l *lease.Lease) {
			l.Checkpoint = lease.AtTimestamp
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				r.seq = 10
				r.put(0, 1, 2)
				r.put(1, 3)
				r.do(func() { r.shards[0].info.FirstSeq = "11" })
				left, _ := r.split(0)
				r.put(left, 4)
				l := lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0))}
				spoil(&l)
				r.create(l)
				incs := r.wantHalted(r.once(r.worker("a")), kinetl.IncidentCheckpoint)
				r.wantHalted(r.once(r.worker("b")), kinetl.IncidentCheckpoint)
				r.wantOrders(3)
				if n := len(r.resumes[shardOf("orders", 0)]); n > 0 {
					t.Errorf("the shard was opened %d times", n)
				}
				if name == "before the shard" {
					r.write(l.Key, func(l *lease.Lease) { l.Checkpoint = "11" })
					if err := r.once(r.worker("c")); err != nil {
						t.Fatal(err)
					}
					r.wantOrders(2, 3, 4)
					return
				}
				if _, err := kinetl.Resolve(t.Context(), r.leases, incs[0].ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
					t.Fatal(err)
				}
				if err := r.once(r.worker("c")); err != nil {
					t.Fatal(err)
				}
				r.wantOrders(1, 2, 3, 4)
			})
		})
	}
}

// R18: a lease says SHARD_END and its shard is open. Once the service has said so for
// two minutes it is an incident, which holds the shard's children back too.
func TestShardEndOfAnOpenShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1)
		r.put(1, 2)
		r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: lease.ShardEnd})
		incs := r.wantHalted(r.once(r.worker("a")), kinetl.IncidentCheckpoint)
		r.wantOrders(2)
		left, _ := r.split(0)
		r.put(left, 3)
		r.wantHalted(r.once(r.worker("b")), kinetl.IncidentCheckpoint)
		r.wantOrders(2)
		if _, err := kinetl.Resolve(t.Context(), r.leases, incs[0].ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
			t.Fatal(err)
		}
		if err := r.once(r.worker("c")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(1, 2, 3)
	})
}

// R15: another system moved the checkpoint since kinetl wrote it. Ahead, the watermark
// follows and the gap is recorded; behind or equal, the watermark decides. Where kinetl
// has neither mark nor watermark, reading starts at the checkpoint; where it has died
// before its first mark, the further of the two counts.
func TestCheckpointsMovedElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		move   string
		unmark bool
		want   []int
		gap    string
	}{
		"ahead":                    {move: "5", want: []int{1, 2, 3, 6, 7}, gap: "5"},
		"behind":                   {move: "2", want: span(1, 7)},
		"equal":                    {want: span(1, 7)},
		"ahead, without a mark":    {move: "5", unmark: true, want: []int{1, 2, 3, 6, 7}, gap: "5"},
		"behind, without a mark":   {move: "1", unmark: true, want: span(1, 7)},
		"reset, without a mark":    {move: lease.TrimHorizon, unmark: true, want: span(1, 7)},
		"ended without being read": {move: lease.ShardEnd, want: []int{1, 2, 3, 8}, gap: "END"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				shard := shardOf("orders", 0)
				r.put(0, 1, 2, 3)
				if err := r.once(r.worker("a")); err != nil {
					t.Fatal(err)
				}
				r.put(0, 4, 5, 6, 7)
				if c.move == lease.ShardEnd {
					left, _ := r.split(0)
					r.put(left, 8)
				}
				time.Sleep(time.Second)
				r.write(kinetl.LeaseKey(shard), func(l *lease.Lease) {
					if c.move != "" {
						l.Checkpoint = c.move
					}
					if c.unmark {
						l.Sink = lease.Sink{}
					}
				})
				for _, worker := range []string{"b", "c"} { // the second finds everything settled
					if err := r.once(r.worker(worker)); err != nil {
						t.Fatal(err)
					}
				}
				r.wantOrders(c.want...)
				gaps := r.memory.Read("orders").Gaps
				switch {
				case c.gap == "" && len(gaps) > 0:
					t.Errorf("gaps %+v", gaps)
				case c.gap != "" && (len(gaps) != 1 || gaps[0].Shard != shard || gaps[0].From != kinetl.At("3", 0) || gaps[0].To.String() != c.gap):
					t.Errorf("gaps %+v, want one from 3 to %s", gaps, c.gap)
				}
			})
		})
	}
}

// R15: a checkpoint of another system, and no watermark: reading starts behind it.
// The first half of a two-phase checkpoint counts for nothing.
func TestACheckpointOfKCLsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1, 2, 3, 4)
		r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: "2", PendingCheckpoint: "3"})
		if err := r.once(r.worker("a")); err != nil {
			t.Fatal(err)
		}
		r.wantOrders(3, 4)
		if l := r.row(0); l.PendingCheckpoint != "" || l.Checkpoint != "4" {
			t.Errorf("the lease says %+v", l)
		}
	})
}

// R19: a start that KCL wrote without its time is pinned by who takes the lease, to
// the oldest instant that the table has for the stream, else to the service's clock or
// to what the pipeline says; and stays there when that one dies before it reads.
func TestAStartThatKCLWrote(t *testing.T) {
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		checkpoint string
		other      time.Time
		start      lease.Start
		want       time.Time
		rows       []int
	}{
		"LATEST":                             {lease.Latest, time.Time{}, lease.Start{}, began.Add(2 * time.Minute), []int{3}},
		"LATEST, pinned before":              {lease.Latest, began.Add(time.Minute), lease.Start{}, began.Add(time.Minute), []int{2, 3}},
		"AT_TIMESTAMP, as the pipeline says": {lease.AtTimestamp, time.Time{}, lease.Start{Checkpoint: lease.AtTimestamp, Instant: began.Add(30 * time.Second)}, began.Add(30 * time.Second), []int{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				r.put(0, 1)
				time.Sleep(time.Minute)
				r.put(0, 2)
				time.Sleep(time.Minute)
				r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Checkpoint: c.checkpoint},
					lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 1)), Checkpoint: lease.Latest, Start: c.other})
				p := r.worker("a")
				p.Consumer.Config.Start = c.start
				var taken atomic.Bool
				p.Consumer.Leases = &flaky{Store: r.leases, hook: func(call string, l lease.Lease) fate {
					dead := taken.Load()
					taken.Store(dead || call == "update" && strings.HasSuffix(l.Key, shardName(0)))
					return bad(dead && call == "update")
				}}
				p.Destination = unclaimed{r.memory}
				w := r.start(p)
				r.until("the lease is taken", taken.Load)
				w.drain(t)
				if l := r.row(0); !l.Start.Equal(c.want) || l.Checkpoint != c.checkpoint {
					t.Errorf("the lease starts at %s %s, want %s", l.Checkpoint, l.Start, c.want)
				}
				time.Sleep(time.Minute)
				r.put(0, 3)
				q := r.worker("b")
				q.Consumer.Config.Start = c.start
				if err := r.once(q); err != nil {
					t.Fatal(err)
				}
				r.wantOrders(c.rows...)
			})
		})
	}
}

// unclaimed is a destination that can't be reached.
type unclaimed struct{ kinetl.Destination }

func (unclaimed) Claim(context.Context, string, []kinetl.Claim) (kinetl.Claimed, error) {
	return kinetl.Claimed{}, errInjected
}

// R22: while a worker of KCL's holds a lease, the end of a shard leaves what it needs:
// rows of the children first, then SHARD_END and their names in one write.
func TestTheEndBesideKCL(t *testing.T) {
	for name, foreign := range map[string]bool{"beside KCL": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				r.put(0, 1)
				left, right := r.split(0)
				// KCL's worker holds the other shard and renews it.
				theirs := lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 1)), Checkpoint: lease.TrimHorizon, Owner: "kcl", Foreign: foreign}
				r.create(theirs)
				renew, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					for {
						select {
						case <-renew:
							return
						case <-time.After(time.Second):
							if l := r.row(1); l.Owner == "kcl" {
								r.write(l.Key, func(*lease.Lease) {})
							}
						}
					}
				}()
				var order []string
				p := r.worker("a")
				p.Consumer.Leases = &flaky{Store: r.leases, hook: func(call string, l lease.Lease) fate {
					switch {
					case call == "create" && l.Key != kinetl.LeaseKey(shardOf("orders", 0)):
						order = append(order, "create")
					case call == "update" && l.Ended() && !r.row(0).Ended():
						order = append(order, "end "+strings.Join(l.Children, " "))
						if foreign && (r.row(left).Key == "" || r.row(right).Key == "") {
							t.Error("SHARD_END was written before the children's rows")
						}
					}
					return fate{}
				}}
				w := r.start(p)
				r.until("the shard has ended", func() bool { return r.row(0).Ended() })
				var want []string
				if foreign {
					want = []string{shardName(left), shardName(right)}
				}
				if l := r.row(0); !slices.Equal(l.Children, want) {
					t.Errorf("children %q, want %q; writes: %q", l.Children, want, order)
				}
				w.drain(t)
				close(renew)
				<-done
				r.wantOrders(1)
			})
		})
	}
}

// A lease that can't be read halts its shard and those that descend from it: a run with
// Once says so and ends.
func TestALeaseThatCantBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.put(0, 1)
		r.put(1, 2)
		left, _ := r.split(0)
		r.put(left, 3)
		r.create(lease.Lease{Key: kinetl.LeaseKey(shardOf("orders", 0)), Unreadable: "checkpoint is missing"})
		incs := r.wantHalted(r.once(r.worker("a")), kinetl.IncidentUnreadable)
		if !strings.Contains(incs[0].Detail, "checkpoint is missing") {
			t.Errorf("detail %s", incs[0].Detail)
		}
		r.wantOrders(2)
		var refused *kinetl.UnresolvableError
		if _, err := kinetl.Resolve(t.Context(), r.leases, incs[0].ID, kinetl.Resolution{From: kinetl.Oldest}); !errors.As(err, &refused) {
			t.Errorf("resolved: %v", err)
		}
	})
}

// R26: a stream that is no more, or whose account, region or name is another, is
// neither the end of its shards nor nothing: an incident, whose resolution deletes the
// lease. One answer may be wrong.
func TestAStreamThatIsGone(t *testing.T) {
	for name, comesBack := range map[string]bool{"for good": false, "for a minute": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				r.put(0, 1)
				p := r.worker("a")
				w := r.start(p)
				r.until("the first is stored", r.has(1))
				back := time.Now().Add(time.Minute)
				r.do(func() {
					r.shards[0].hidden = true
					r.fault = func(call string, shard kinetl.ShardID) error {
						if call == "next" && (!comesBack || time.Now().Before(back)) {
							return &kinetl.GoneError{Shard: shard}
						}
						return nil
					}
				})
				r.put(0, 2)
				if comesBack {
					r.until("it is read on", r.has(2))
					w.drain(t)
					return
				}
				r.until("a person is told", func() bool { return len(r.open()) == 1 })
				w.drain(t)
				inc := r.open()[0]
				if inc.Kind != kinetl.IncidentGone || inc.Position != "1" || r.row(0).Ended() {
					t.Errorf("%+v, lease %+v", inc, r.row(0))
				}
				r.wantHalted(r.once(r.worker("b")), kinetl.IncidentGone)
				if _, err := kinetl.Resolve(t.Context(), r.leases, inc.ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
					t.Fatal(err)
				}
				if err := r.once(r.worker("c")); err != nil {
					t.Errorf("the run ended with %v", err)
				}
			})
		})
	}
}

// R26: with Once, too, a stream that goes away while it is read is no success.
func TestOnceOfAStreamThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.put(0, 1)
		r.fault = func(call string, shard kinetl.ShardID) error {
			if call != "next" {
				return nil
			}
			r.do(func() { r.shards[0].hidden = true })
			return &kinetl.GoneError{Shard: shard}
		}
		r.wantHalted(r.once(r.worker("a")), kinetl.IncidentGone)
	})
}
