package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kinetl/kinetl"
)

// failingLimit is how long a table may fail before the process is not ready. A
// database that restarts is back sooner; one that is not needs somebody to look.
const failingLimit = time.Minute

// state is what a pipeline's events so far come to. The lock of Server guards it.
type state struct {
	begun   bool                      // a shard was opened, or there was none to hold
	shards  map[kinetl.ShardID]*shard // whose leases are held
	failing map[string]time.Time      // table -> since when its commits fail

	notices map[string]notice // incidents that do not halt, by id

	rows, dead    map[byTable]int64
	reopened      map[reopening]int64
	schemaChanges map[string]int64 // by table
	retries       map[string]int64 // by reason
	leasesLost    int64
}

// shard is a shard whose lease is held.
type shard struct {
	table    string
	records  int64
	bytes    int64
	lag      time.Duration
	fetched  bool                // lag is known
	pending  int64               // records read since reading began that no commit holds
	current  time.Time           // everything that the shard held then was stored, or then a part of it was
	failing  time.Time           // reading could not begin anew since then
	incident kinetl.IncidentKind // that halts it; other for one that another version of kinetl wrote
}

// notice is an open incident that does not halt, and the shard whose lease has it.
type notice struct {
	kind  kinetl.IncidentKind
	shard kinetl.ShardID
}

type byTable struct{ stream, table string }

type reopening struct{ stream, cause string }

func newState() *state {
	return &state{
		shards: map[kinetl.ShardID]*shard{}, failing: map[string]time.Time{}, notices: map[string]notice{},
		rows: map[byTable]int64{}, dead: map[byTable]int64{},
		reopened: map[reopening]int64{}, schemaChanges: map[string]int64{},
		// There from the start: an alert on an increase does not see the first one of
		// a series that appears with it.
		retries: map[string]int64{retryLeases: 0, retryCommit: 0, retryIncident: 0, other: 0},
	}
}

func (s *state) observe(e kinetl.Event) {
	switch e.Kind {
	case kinetl.EventSynced:
		s.begun = s.begun || len(s.shards) == 0
	case kinetl.EventLeaseTaken:
		s.shards[e.Shard] = &shard{current: e.At}
	case kinetl.EventLeaseReleased, kinetl.EventEnded:
		s.drop(e.Shard)
	case kinetl.EventLeaseLost:
		s.leasesLost++
		s.drop(e.Shard)
		// Resolved, or with the next holder, who tells it.
		maps.DeleteFunc(s.notices, func(_ string, n notice) bool { return n.shard == e.Shard })
	case kinetl.EventCommitted:
		key := byTable{e.Shard.StreamName(), e.Table}
		s.rows[key] += e.Rows
		s.dead[key] += e.DeadLetters
		delete(s.failing, e.Table)
	case kinetl.EventReopened:
		cause := causeOf(e.Err)
		s.reopened[reopening{e.Shard.StreamName(), cause}]++
		if cause != other {
			delete(s.failing, e.Table) // the table answered
		}
	case kinetl.EventRetrying:
		s.retries[reasonOf(e.Reason)]++
		if _, known := s.failing[e.Table]; !known && e.Table != "" {
			s.failing[e.Table] = e.At
		}
	case kinetl.EventSchema:
		s.schemaChanges[e.Table]++
	}
	if e.Kind == kinetl.EventIncident && e.Incident != nil && !e.Incident.Halts {
		s.notices[e.Incident.ID] = notice{kindOf(e.Incident), e.Shard}
		return
	}
	// A commit may still be told after its shard's lease was lost.
	if sh, held := s.shards[e.Shard]; held {
		s.observeShard(sh, e)
	}
}

// observeShard takes in what concerns one held shard.
func (s *state) observeShard(sh *shard, e kinetl.Event) {
	switch e.Kind {
	case kinetl.EventOpened:
		s.begun = true
		sh.table, sh.pending, sh.failing, sh.incident = e.Table, 0, time.Time{}, ""
		key := byTable{e.Shard.StreamName(), e.Table}
		s.rows[key] += 0 // there from the start, as above
		s.dead[key] += 0
	case kinetl.EventFetched:
		sh.records += e.Records
		sh.bytes += e.Bytes
		sh.pending += e.Records
		sh.lag, sh.fetched = e.Lag, true
		// At the tip, but current only if nothing that was read waits for a commit.
		if e.Lag == 0 && sh.pending == 0 {
			sh.current = e.At
		}
	case kinetl.EventCommitted:
		sh.current = e.At
		sh.pending = max(0, sh.pending-e.Rows-e.DeadLetters) // parts of an earlier opening may come late
	case kinetl.EventReopened:
		if sh.failing.IsZero() {
			sh.failing = e.At
		}
	case kinetl.EventIncident:
		s.begun = true // as far as it can without a person
		sh.incident = kindOf(e.Incident)
	}
}

// kindOf is the label of an incident.
func kindOf(inc *kinetl.Incident) kinetl.IncidentKind {
	if inc != nil && slices.Contains(incidentKinds, inc.Kind) {
		return inc.Kind
	}
	return other
}

// drop forgets a shard, and the troubles of a table that no other shard feeds:
// nothing that this worker does would end them.
func (s *state) drop(id kinetl.ShardID) {
	delete(s.shards, id)
	fed := map[string]bool{}
	for _, sh := range s.shards {
		fed[sh.table] = true
	}
	for table := range s.failing {
		if !fed[table] {
			delete(s.failing, table)
		}
	}
}

// unready is the reason why the pipeline is not ready, or nothing. An idle worker
// is ready: it stands by for leases.
func (s *state) unready(now time.Time) string {
	if !s.begun {
		return "starting: no shard was opened yet"
	}
	var reasons []string
	for table, since := range s.failing {
		if d := now.Sub(since); d > failingLimit {
			reasons = append(reasons, fmt.Sprintf("commits to table %s have failed for %s", table, d.Round(time.Second)))
		}
	}
	for id, sh := range s.shards {
		if d := now.Sub(sh.failing); !sh.failing.IsZero() && sh.incident == "" && d > failingLimit {
			reasons = append(reasons, fmt.Sprintf("reading %s could not begin for %s", id, d.Round(time.Second)))
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	return slices.MinFunc(reasons, cmp.Compare[string])
}

// Label values. None comes from an error's text, of which there is no end.
const (
	retryLeases   = "leases_and_shards"
	retryCommit   = "commit"
	retryIncident = "incident"

	causeFenced  = "fenced"
	causeSchema  = "schema_changed"
	causeRefused = "rows_refused"
	causeGone    = "stream_gone"

	other = "other"
)

var causes = []string{causeFenced, causeSchema, causeRefused, causeGone, other}

// reasonOf is the label for the reason of a retry, as the engine words it.
func reasonOf(reason string) string {
	switch reason {
	case "reading leases and shards":
		return retryLeases
	case "committing":
		return retryCommit
	case "recording an incident":
		return retryIncident
	}
	return other
}

// causeOf is the label for the error that made reading begin anew.
func causeOf(err error) string {
	var fenced *kinetl.FencedError
	var changed *kinetl.SchemaChangedError
	var rejected *kinetl.RejectedError
	var gone *kinetl.GoneError
	switch {
	case errors.As(err, &fenced):
		return causeFenced
	case errors.As(err, &changed):
		return causeSchema
	case errors.As(err, &rejected):
		return causeRefused
	case errors.As(err, &gone):
		return causeGone
	}
	return other
}
