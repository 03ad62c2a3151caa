package kinetl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// load reads one shard into its table for as long as this worker holds the lease,
// starting over at the watermark whenever the table says so.
func (p *pipeline) load(ctx context.Context, shard *Shard) error {
	defer func() {
		if errors.Is(context.Cause(ctx), ErrLeaseLost) {
			p.forget(shard.Info.ID)
		}
	}()
	for _, inc := range OpenIncidents(shard.Lease()) {
		p.tell(inc.ID, shard.Info.ID)
		p.observe.emit(Event{Kind: EventIncident, Shard: shard.Info.ID, Incident: &inc})
	}
	marks := map[Position]RejectedRow{}
	var missed time.Time // since when the stream is gone
	for attempt := 0; ; attempt++ {
		s := p.newSession(shard, marks)
		err := s.run(ctx)
		if s.progressed {
			attempt = 0
		}
		var rejected *RejectedError
		var incident *incidentError
		var fatal *fatalError
		var gone *GoneError
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.As(err, &fatal):
			return fatal.cause
		case errors.As(err, &gone):
			// One answer may be wrong, and it is for a person to say that what was not
			// read is not missed. An end it never is (R5).
			if missed.IsZero() || s.progressed {
				missed = time.Now()
			}
			if time.Since(missed) >= goneFor {
				return halt(ctx, p.observe, shard, newGone(shard.Info.ID, s.reached()))
			}
			attempt = 8
		case errors.As(err, &incident):
			return halt(ctx, p.observe, shard, incident.incident)
		case errors.As(err, &rejected):
			for _, r := range rejected.Rows {
				marks[r.Position] = r
			}
		}
		p.observe.emit(Event{Kind: EventReopened, Shard: shard.Info.ID, Table: s.table.name, Err: err})
		if !pause(ctx, backoff(attempt)) {
			return nil
		}
	}
}

// goneFor is how long a stream must be missing until that is an incident: a source
// looks its streams up once a minute.
const goneFor = 2 * time.Minute

// halt records an incident and holds the shard still until somebody resolves it.
func halt(ctx context.Context, observe observer, shard *Shard, inc Incident) error {
	observe.emit(Event{Kind: EventIncident, Shard: shard.Info.ID, Incident: &inc})
	for attempt := 0; ; attempt++ {
		err := shard.Halt(ctx, inc)
		if err == nil || ctx.Err() != nil {
			break
		}
		observe.emit(Event{Kind: EventRetrying, Shard: shard.Info.ID, Reason: "recording an incident", Err: err})
		if !pause(ctx, backoff(attempt)) {
			break
		}
	}
	<-ctx.Done()
	return nil
}

// incidentError ends a session because a person must decide.
type incidentError struct{ incident Incident }

func (e *incidentError) Error() string { return e.incident.Detail }

// fatalError ends the whole run.
type fatalError struct{ cause error }

func (e *fatalError) Error() string { return e.cause.Error() }

// session reads a shard from its watermark until its end, the end of its context,
// or a reason to start over. One goroutine runs it; a second one, the pump, waits
// for pages, so that a session that waits for bytes or records still seals by age.
type session struct {
	p       *pipeline
	shard   *Shard
	id      ShardID
	table   *table
	marks   map[Position]RejectedRow // what the table refused
	builder *Builder
	decoder Decoder

	part       openPart
	sealed     Position // through which parts were handed to the committer
	tip        time.Time
	flight     *flight
	paused     bool // Until was reached: nothing more is read in this run
	accepted   bool // the next part comes after a gap that a person accepted (R24)
	progressed bool
}

// openPart is what will be the next part.
type openPart struct {
	dead    []DeadLetter
	gap     *Gap
	deadLen int64
	through Position
	grant   *grant
	age     *time.Timer
	tip     time.Time // the shard was read to its tip then
}

func (p *pipeline) newSession(shard *Shard, marks map[Position]RejectedRow) *session {
	t := p.table(shard.Info.ID)
	return &session{
		p: p, shard: shard, id: shard.Info.ID, table: t, marks: marks,
		decoder: p.NewDecoder(),
		builder: NewBuilder(t.current(), p.Config.TypeChanges, p.Config.Metadata),
		flight:  newFlight(),
	}
}

func (s *session) run(ctx context.Context) error {
	resume, err := s.open(ctx)
	if err != nil || resume.After == End {
		return err
	}
	s.part.age = time.NewTimer(time.Hour)
	s.part.age.Stop()
	defer func() { s.part.age.Stop() }()
	if s.shard.Unlisted {
		return s.finish(ctx) // open let it pass: nothing is left to read
	}
	reader, err := s.p.Source.Read(ctx, s.id, resume)
	if err != nil {
		return err
	}
	s.p.observe.emit(Event{Kind: EventOpened, Shard: s.id, Table: s.table.name, Position: resume.After})
	s.builder.Reset(s.table.current())
	pump := startPump(ctx, reader, s.table.account)
	defer pump.stop()
	defer s.discard()
	return s.loop(ctx, pump)
}

// open claims the shard's watermark and decides where reading goes on (R15).
func (s *session) open(ctx context.Context) (Resume, error) {
	if err := s.table.prepare(ctx, nil); err != nil {
		return Resume{}, fmt.Errorf("prepare table %s: %w", s.table.name, err)
	}
	l := s.shard.Lease()
	claim := Claim{Shard: s.id, Parents: s.shard.Parents}
	if l.Sink.ID == "" {
		claim.Start = startOf(l)
	}
	got, err := s.p.Destination.Claim(ctx, s.table.name, []Claim{claim})
	var parent *UnfinishedParentError
	var other *OtherApplicationError
	var broken *BrokenError
	switch {
	case errors.As(err, &parent), errors.As(err, &other), errors.As(err, &broken):
		return Resume{}, &fatalError{err}
	case err != nil:
		return Resume{}, fmt.Errorf("claim in table %s: %w", s.table.name, err)
	}
	through, ok := got.Through[s.id]
	switch {
	case l.Sink.ID != "" && (l.Sink.ID != got.Sink || l.Sink.Table != s.table.name):
		return Resume{}, s.incident(IncidentOtherSink, startOf(l), fmt.Sprintf("%s: its lease stands for table %s of another database or file (sink %s), not for table %s here: point the pipeline at that one, or start with another application name", s.id, l.Sink.Table, l.Sink.ID, s.table.name))
	case !ok:
		return Resume{}, s.incident(IncidentNoWatermark, startOf(l), fmt.Sprintf("%s: its lease says that table %s holds it, but the table has no watermark for it: restore the table, or start with another application name", s.id, s.table.name))
	}
	if _, err := ParsePosition(string(through)); err != nil {
		// Read as it stands it would be no start, and reading would begin anew.
		return Resume{}, s.incident(IncidentNoWatermark, startOf(l), fmt.Sprintf("%s: its watermark in table %s can't be read (%v): restore it, or start with another application name", s.id, s.table.name, err))
	}
	s.table.setSink(got.Sink)
	if through, err = s.follow(ctx, l, through); err != nil {
		return Resume{}, err
	}
	s.sealed, s.part.through = through, through
	if through == End {
		return Resume{After: End}, s.shard.Finish(ctx, s.table.sink(End))
	}
	from, ok := accepted(l.Accepted, through)
	s.accepted = ok
	if s.shard.Unlisted && !s.accepted {
		return Resume{}, s.incident(IncidentExpired, through, fmt.Sprintf("%s: the shard has left its stream, what it held after %s expired unread: decide whether to go on without it", s.id, through))
	}
	if through < Position(l.Sink.Position) {
		// The table is an older copy of the one that had been caught up (R26).
		l.CaughtUp = time.Time{}
		s.shard.keeper.edit(func(l *lease.Lease) { l.CaughtUp = time.Time{} })
	}
	resume := Resume{After: through, CaughtUp: l.CaughtUp, Listed: l.Created, Accepted: s.accepted}
	if s.accepted && from != Oldest {
		resume.After = from
	}
	return resume, nil
}

// follow moves the watermark to where another system, a worker of KCL's in the same
// fleet, has checkpointed beyond it (R15): what lies between went where that one sends
// it. Behind, the watermark decides.
func (s *session) follow(ctx context.Context, l lease.Lease, through Position) (Position, error) {
	to := startOf(l)
	if !elsewhere(l) || to <= through {
		return through, nil
	}
	const reason = "read by another system, which moved the checkpoint of the lease"
	if err := s.p.Destination.Move(ctx, s.table.name, []Move{{Shard: s.id, From: through, To: to}}, reason); err != nil {
		return "", fmt.Errorf("follow the checkpoint of another system: %w", err)
	}
	s.shard.Checkpoint(to, s.table.sink(to))
	s.p.observe.emit(Event{Kind: EventNote, Shard: s.id, Table: s.table.name, Position: to, Reason: fmt.Sprintf("%s: records after %s and through %s were %s", s.id, through, to, reason)})
	return to, nil
}

// reached is the position through which the session read, or from which it was to begin.
func (s *session) reached() Position {
	if s.sealed == "" {
		return startOf(s.shard.Lease())
	}
	return s.sealed
}

func (s *session) incident(kind IncidentKind, p Position, detail string) error {
	return &incidentError{NewIncident(kind, s.id, p, detail, time.Now())}
}

// loop takes pages in and seals parts by rows, bytes, age, and need of memory.
func (s *session) loop(ctx context.Context, pump *pump) error {
	for {
		var pressure <-chan struct{}
		if s.holdsAny() {
			pressure = s.table.account.pressure()
		}
		select {
		case page := <-pump.pages:
			end, err := s.take(page)
			switch {
			case err != nil:
				return s.leave(ctx, err)
			case end:
				return s.finish(ctx)
			case s.paused:
				// Stamps within a shard are not strictly ordered: reading on could
				// step over a record that was left out.
				pump.stop()
			}
		case <-s.part.age.C:
			s.seal()
		case <-pressure:
			s.seal()
		case <-s.flight.changed:
			if err := s.landed(); err != nil {
				return err
			}
		case <-ctx.Done():
			return s.drain(ctx)
		}
	}
}

// holdsAny reports whether there is anything to seal.
func (s *session) holdsAny() bool { return s.builder.Rows() > 0 || len(s.part.dead) > 0 }

// take turns one page into rows. It reports the end of a closed shard.
func (s *session) take(page page) (end bool, err error) {
	if page.err != nil {
		return s.refuse(page.err)
	}
	defer page.done()
	f := page.fetch
	s.shard.keeper.read(f.Bytes)
	s.p.observe.emit(Event{Kind: EventFetched, Shard: s.id, Table: s.table.name, Records: int64(len(f.Records)), Bytes: f.Bytes, Lag: f.Lag})
	until := s.p.Config.Until
	for i := range f.Records {
		rec := &f.Records[i]
		if !until.IsZero() && !rec.Arrived.Before(until) {
			// Not the tip: what is left in the stream may expire unread (R26).
			f.CaughtUp, s.paused = until, true
			break
		}
		if s.accepted {
			if rec.Position() <= s.sealed {
				continue // from before the gap, after all
			}
			s.goOn(rec.Position())
		}
		if err := s.decode(rec); err != nil {
			return false, err
		}
		if full := s.full(); full || i == len(f.Records)-1 || s.watchful() {
			// Not for each record: a position is text of 150 bytes.
			s.part.through = rec.Position()
			if full {
				s.seal()
			}
		}
	}
	s.account()
	if s.paused {
		s.shard.Pause()
	}
	if !f.CaughtUp.IsZero() {
		s.caughtUp(f.CaughtUp)
	}
	return false, nil
}

// watchful reports whether taking a page in may end before its last record: the
// position must then be known after each.
func (s *session) watchful() bool {
	return !s.p.Config.Until.IsZero() || s.p.Config.FailUndecodable
}

func (s *session) refuse(err error) (end bool, _ error) {
	var expired *ExpiredError
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case errors.As(err, &expired):
		return false, s.incident(IncidentExpired, expired.After, expired.Error()+": decide whether to go on at the oldest record")
	}
	return false, err
}

// decode adds one record to the open part, as a row or as a dead letter.
func (s *session) decode(rec *Record) error {
	reason := ""
	mark, refused := s.mark(rec)
	if refused {
		reason = mark.Reason
		if mark.Column != "" {
			s.notice(s.table.column(mark.Column), rec.Position())
		}
	} else {
		err := s.decoder.Decode(rec.Data, s.builder)
		if err == nil {
			err = s.builder.EndRow(rec, s.id)
		}
		if err == nil {
			return nil
		}
		s.builder.AbortRow()
		reason = err.Error()
		at := rec.Position()
		if s.p.Config.FailUndecodable {
			return s.incident(IncidentUndecodable, at, fmt.Sprintf("%s: record %s can't be decoded (undecodable: fail): %s", s.id, at, reason))
		}
		var capped *CappedError
		if errors.As(err, &capped) {
			s.notice(capped.Column, at)
		}
	}
	s.part.dead = append(s.part.dead, DeadLetter{
		Sequence: strings.Clone(rec.Sequence), Sub: rec.Sub, Arrived: rec.Arrived, PartitionKey: strings.Clone(rec.PartitionKey),
		Reason: reason, Payload: bytes.Clone(rec.Data), At: time.Now(),
	})
	s.part.deadLen += int64(len(rec.Data)) + 256
	s.p.observe.emit(Event{Kind: EventDeadLetter, Shard: s.id, Table: s.table.name, Position: rec.Position(), Reason: reason})
	return nil
}

// mark is what the table said of a record that it refused before.
func (s *session) mark(rec *Record) (m RejectedRow, refused bool) {
	if len(s.marks) == 0 {
		return m, false
	}
	m, refused = s.marks[rec.Position()]
	return m, refused
}

// notice opens the incident of a column that values do not fit, once. Reading goes on.
func (s *session) notice(c Column, p Position) {
	inc := newColumnCapped(s.table.name, c, s.id, p, time.Now())
	if s.p.tell(inc.ID, s.id) {
		s.shard.Notice(inc)
		s.p.observe.emit(Event{Kind: EventIncident, Shard: s.id, Table: s.table.name, Incident: &inc})
	}
}

// goOn makes the first part after an accepted gap say where reading went on: in the
// table the gap is recorded once and with the part, whatever fails in between.
func (s *session) goOn(at Position) {
	s.accepted = false
	s.part.gap = &Gap{To: at, Reason: "expired unread or given up, accepted: what came after the one position and before the other was not read"}
}

func (s *session) full() bool {
	b := s.p.Config.Batch
	return s.builder.Rows()+len(s.part.dead) >= b.Rows || s.builder.Bytes()+s.part.deadLen >= b.Bytes
}

// account makes the open part hold the bytes that it has grown to, and starts its age.
func (s *session) account() {
	if !s.holdsAny() {
		return
	}
	if s.part.grant == nil {
		s.part.grant = &grant{account: s.table.account}
		s.part.age.Reset(s.p.Config.Batch.Age)
	}
	s.part.grant.set(s.builder.Bytes() + s.part.deadLen)
}

// caughtUp notes that the shard was read to its tip at t. It counts once everything
// read so far is durable.
func (s *session) caughtUp(t time.Time) {
	s.part.tip = t
	switch {
	case !s.holdsAny() && s.flight.idle():
		s.shard.CaughtUp(t)
	case !s.holdsAny():
		s.tip = t // behind the parts in flight
	case s.p.Once:
		s.seal() // nobody waits for more
	}
}

// seal hands the open part to the committer.
func (s *session) seal() {
	if !s.holdsAny() && s.part.through == s.sealed {
		return
	}
	s.account()
	rows, schema, ids := s.builder.Seal()
	part := Part{Shard: s.id, After: s.sealed, Through: s.part.through, Schema: schema, RowIDs: ids, DeadLetters: s.part.dead, Gap: s.part.gap}
	if len(ids) > 0 {
		part.Rows = rows
		s.part.grant.set(batchBytes(part) + s.part.deadLen)
	}
	s.sealed = s.part.through
	s.table.submit(&pending{part: part, shard: s.shard, grant: s.part.grant, tip: s.part.tip, flight: s.flight})
	s.part.age.Stop()
	s.part = openPart{through: s.part.through, age: s.part.age}
	s.builder.Reset(s.table.current())
}

// landed looks at what became of parts in flight.
func (s *session) landed() error {
	idle, landed, err := s.flight.state()
	s.progressed = s.progressed || landed
	if err != nil {
		return err
	}
	if idle && !s.tip.IsZero() {
		s.shard.CaughtUp(s.tip)
		s.tip = time.Time{}
	}
	return nil
}

// finish makes the end of a closed shard durable in the table, and only then in
// the lease: children start when the lease says so (R8).
func (s *session) finish(ctx context.Context) error {
	if s.accepted {
		s.goOn(End)
	}
	s.part.through = End
	s.seal()
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.shard.Finish(ctx, s.table.sink(End))
}

// drain makes what was read durable when the program stops.
func (s *session) drain(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrLeaseLost) {
		return ErrLeaseLost
	}
	s.seal()
	return s.settle(ctx)
}

// leave ends the session because of err, once what was read before is durable: by
// the next session the stream may be gone, and a halted shard has none.
func (s *session) leave(ctx context.Context, err error) error {
	if failed := s.drain(ctx); failed != nil {
		return failed
	}
	return err
}

// settle waits until no part is in flight. When the program stops it goes on for as
// long as a drain may take. A lost lease ends it: the next worker reads again what
// is in flight, and the table fences this one.
func (s *session) settle(ctx context.Context) error {
	stop := ctx.Done()
	var late <-chan time.Time
	for {
		if err := s.landed(); err != nil {
			return err
		}
		if s.flight.idle() {
			return nil
		}
		select {
		case <-s.flight.changed:
		case <-stop:
			if errors.Is(context.Cause(ctx), ErrLeaseLost) {
				return ErrLeaseLost
			}
			patience := s.p.Config.Drain
			if errors.Is(context.Cause(ctx), errHandedOver) {
				patience = min(patience, handOver)
			}
			stop, late = nil, time.After(patience)
		case <-late:
			return ctx.Err()
		}
	}
}

// handOver is how long a commit in flight may keep a lease that another worker lacks.
// It is not lost then, nor stored twice: the other one goes on where the table stands.
const handOver = time.Second

// discard gives back what an abandoned session still holds.
func (s *session) discard() {
	s.part.grant.set(0)
	s.builder.AbortRow()
}

// startOf is where a lease says that reading begins.
func startOf(l lease.Lease) Position {
	switch {
	case l.Ended():
		return End
	case !lease.IsSentinel(l.Checkpoint):
		return At(l.Checkpoint, l.Sub)
	case !l.Start.IsZero():
		return Since(l.Start)
	}
	return Oldest
}

// backoff is how long to wait before attempt n+1: 50 ms doubling to 10 s, with
// jitter so that shards that failed together do not return together.
func backoff(n int) time.Duration {
	d := 10 * time.Second
	if n < 8 {
		d = 50 * time.Millisecond << n
	}
	return d/2 + jitter(d/2)
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
