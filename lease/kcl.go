package lease

import "time"

// Numbers of KCL's lease taker (versions 1 and 2, and 3 in their mode).
const (
	kclOld   = 3 // failover times after which an unchanged lease is taken by whoever sees it
	kclRound = 2 // failover times between two rounds of taking
)

// likeKCL is how workers of KCL 1 and 2 share leases, in its own order, so that a
// fleet of both kinds comes to rest: shares count every lease that is not finished,
// also those that wait for a parent, which KCL's workers hold and kinetl's do not.
//
//  1. Leases that nobody has touched for a long time, or ever, are taken at once,
//     whatever the share, and nothing else is taken in that round.
//  2. Otherwise up to the share of what is available.
//  3. Only if nothing is available one lease is stolen, from the worker that has
//     most: if that is more than its share, or just its share while this worker
//     lacks more than one.
//
// Such a worker hears no signals and gives nothing up by itself: it notices at its
// next renewal, and what it had not checkpointed is done again.
func (c *Coordinator) likeKCL(now time.Time, t table) []Action {
	c.lacking = time.Time{}
	mine := len(t.mine)
	var old []Lease
	for _, l := range t.free {
		if l.Owner == "" && l.Counter == 0 || now.Sub(c.seen[l.Key].at) >= kclOld*c.Failover {
			old = append(old, l)
		}
	}
	if n := c.room(len(old), mine); n > 0 {
		return actions(Take, old[:n])
	}
	workers := len(t.others) + 1
	share := 1
	if workers < len(t.open) {
		share = (len(t.open) + workers - 1) / workers
	}
	need := c.room(share-mine, mine)
	if n := min(need, len(t.free)); n > 0 {
		return actions(Take, t.free[:n])
	}
	if need == 0 || now.Sub(c.stole) < kclRound*c.Failover {
		return nil
	}
	victim := t.others[t.mostLoaded(func(ls []Lease) []Lease { return ls })]
	from := t.readyOf(victim)
	if len(victim) < share || len(victim) == share && need < 2 || len(from) == 0 {
		return nil
	}
	c.stole = now
	c.shuffle(from)
	return actions(Steal, from[:1])
}
