package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kinetl/kinetl"
)

// repeatEvery is how often a warning that goes on repeating is logged.
const repeatEvery = 30 * time.Second

// logEvents logs the engine's events. Messages are constant, and nothing of a
// record's payload is among the values. The function may be called from many
// goroutines.
func logEvents(l *slog.Logger) func(kinetl.Event) {
	log := &eventLog{logger: l, repeats: map[warning]*repeat{}}
	return log.observe
}

type eventLog struct {
	logger *slog.Logger

	mu      sync.Mutex
	repeats map[warning]*repeat
}

// warning is what makes two warnings the same. The error's text is not part of it:
// request ids make each one of a kind.
type warning struct {
	kind   kinetl.EventKind
	shard  kinetl.ShardID
	table  string
	reason string
}

type repeat struct {
	logged  time.Time
	skipped int
}

func (e *eventLog) observe(ev kinetl.Event) {
	switch ev.Kind {
	case kinetl.EventLeaseTaken:
		e.log(slog.LevelInfo, "lease taken", ev)
	case kinetl.EventLeaseReleased:
		e.log(slog.LevelInfo, "lease released", ev, errAttr(ev.Err)...)
	case kinetl.EventEnded:
		e.log(slog.LevelInfo, "shard ended", ev, errAttr(ev.Err)...)
	case kinetl.EventOpened:
		e.log(slog.LevelInfo, "reading", ev)
	case kinetl.EventSchema:
		e.log(slog.LevelInfo, "schema changed", ev, slog.String("change", ev.Reason))
	case kinetl.EventLeaseLost:
		e.log(slog.LevelWarn, "lease lost", ev, errAttr(ev.Err)...)
	case kinetl.EventNote:
		e.log(slog.LevelInfo, "note", ev, slog.String("what", ev.Reason))
	case kinetl.EventRetrying:
		e.warn("retrying", ev, slog.String("reason", ev.Reason))
	case kinetl.EventReopened:
		e.warn("reading anew from the watermark", ev)
	case kinetl.EventIncident:
		e.log(slog.LevelError, "incident", ev, incidentAttrs(ev.Incident)...)
	case kinetl.EventCommitted:
		e.log(slog.LevelDebug, "committed", ev, slog.Int64("rows", ev.Rows), slog.Int64("dead_letters", ev.DeadLetters), slog.Duration("took", ev.Took))
	case kinetl.EventDeadLetter:
		// Not its reason, which may quote the record.
		e.log(slog.LevelDebug, "dead letter", ev)
	}
}

// warn logs the first of equal warnings, and then one every 30 s that counts those
// left out.
func (e *eventLog) warn(message string, ev kinetl.Event, attrs ...slog.Attr) {
	key := warning{ev.Kind, ev.Shard, ev.Table, ev.Reason}
	e.mu.Lock()
	r, known := e.repeats[key]
	if !known {
		r = &repeat{}
		e.repeats[key] = r
	}
	if known && ev.At.Sub(r.logged) < repeatEvery {
		r.skipped++
		e.mu.Unlock()
		return
	}
	skipped := r.skipped
	r.logged, r.skipped = ev.At, 0
	e.mu.Unlock()
	if skipped > 0 {
		attrs = append(attrs, slog.Int("not_logged", skipped))
	}
	e.log(slog.LevelWarn, message, ev, append(attrs, errAttr(ev.Err)...)...)
}

func (e *eventLog) log(level slog.Level, message string, ev kinetl.Event, attrs ...slog.Attr) {
	if !e.logger.Enabled(context.Background(), level) {
		return
	}
	var all []slog.Attr
	if ev.Shard != (kinetl.ShardID{}) {
		all = append(all, slog.String("stream", ev.Shard.StreamName()), slog.String("shard", ev.Shard.Shard))
	}
	if ev.Table != "" {
		all = append(all, slog.String("table", ev.Table))
	}
	if ev.Position != "" {
		all = append(all, slog.String("position", ev.Position.String()))
	}
	e.logger.LogAttrs(context.Background(), level, message, append(all, attrs...)...)
}

// errAttr is an error's text, but for that of an error that quotes rows: what an
// engine says of a value that it refuses has the value in it.
func errAttr(err error) []slog.Attr {
	var rejected *kinetl.RejectedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rejected):
		text := fmt.Sprintf("table %s refused %d row(s), the first at %s: they become dead letters", rejected.Table, len(rejected.Rows), rejected.Rows[0].Position)
		return []slog.Attr{slog.String("err", text)}
	}
	return []slog.Attr{slog.String("err", err.Error())}
}

// incidentAttrs leaves out the detail of a record that can't be decoded, which
// quotes it.
func incidentAttrs(inc *kinetl.Incident) []slog.Attr {
	if inc == nil {
		return nil
	}
	attrs := []slog.Attr{slog.String("incident", inc.ID), slog.String("kind", string(inc.Kind)), slog.String("position", inc.Position)}
	if inc.Kind != kinetl.IncidentUndecodable {
		attrs = append(attrs, slog.String("detail", inc.Detail))
	}
	return attrs
}
