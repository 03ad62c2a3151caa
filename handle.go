package kinetl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Handle reads every shard that this worker comes to hold and hands fn its records, in
// order, a page at a time; pages of different shards come at the same time. It is for
// programs that do with records what they like. What Run says of ends and errors holds
// here too.
//
//   - fn says itself what is done: shard.Checkpoint(record.Position(), lease.Sink{}),
//     when that record and all before it are, in or after the call, from any goroutine.
//     Who reads the shard next begins after it, so delivery is at least once.
//   - An error of fn is no end: the same records come again, after 50 ms and up to 10 s
//     later. Nothing is skipped. To give the run up, end its context.
//   - The last call of a shard that is finished has no records. When it returns nil the
//     shard's children are read, so everything must be durable by then.
//   - With Once, Run waits until what was handed over is checkpointed too.
//
// Records and their bytes live until fn returns nil.
func (c *Consumer) Handle(ctx context.Context, fn func(ctx context.Context, shard *Shard, records []Record) error) error {
	source, observe := c.Source, observer(c.Config.Observe)
	return c.Run(ctx, func(ctx context.Context, s *Shard) error {
		h := &handler{source: source, observe: observe, fn: fn, shard: s, at: startOf(s.Lease())}
		return h.run(ctx)
	})
}

// handler hands over the records of one shard.
type handler struct {
	source  Source
	observe observer
	fn      func(context.Context, *Shard, []Record) error
	shard   *Shard
	at      Position // everything through it was handed over
	moved   bool     // something was, since reading last began
}

// run reads the shard until it is finished or ctx ends. A failed read goes on after
// what was handed over last.
func (h *handler) run(ctx context.Context) error {
	id := h.shard.Info.ID
	var missed time.Time
	for attempt := 0; ; attempt++ {
		h.moved = false
		err := h.read(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if h.moved {
			attempt = 0
		}
		var expired *ExpiredError
		var gone *GoneError
		switch {
		case errors.As(err, &expired):
			return h.halt(ctx, NewIncident(IncidentExpired, id, expired.After, expired.Error()+": decide whether to go on at the oldest record", time.Now()))
		case errors.As(err, &gone):
			if missed.IsZero() || h.moved {
				missed = time.Now()
			}
			if time.Since(missed) >= goneFor {
				return h.halt(ctx, newGone(id, h.at))
			}
			attempt = 8
		}
		h.observe.emit(Event{Kind: EventReopened, Shard: id, Position: h.at, Err: err})
		if !pause(ctx, backoff(attempt)) {
			return nil
		}
	}
}

func (h *handler) halt(ctx context.Context, inc Incident) error {
	return halt(ctx, h.observe, h.shard, inc)
}

// read hands over pages until the shard is finished or reading fails.
func (h *handler) read(ctx context.Context) error {
	l := h.shard.Lease()
	from, ok := accepted(l.Accepted, h.at)
	if h.shard.Unlisted {
		if !ok {
			return &ExpiredError{Shard: h.shard.Info.ID, After: h.at, CaughtUp: l.CaughtUp}
		}
		return h.finish(ctx)
	}
	resume := Resume{After: h.at, CaughtUp: l.CaughtUp, Listed: l.Created, Accepted: ok}
	if ok && from != Oldest {
		resume.After = from
	}
	reader, err := h.source.Read(ctx, h.shard.Info.ID, resume)
	if err != nil {
		return err
	}
	defer reader.Close()
	h.observe.emit(Event{Kind: EventOpened, Shard: h.shard.Info.ID, Position: resume.After})
	for {
		if _, err := reader.Ready(ctx); err != nil {
			return err
		}
		f, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return h.finish(ctx)
		}
		if err != nil {
			return err
		}
		if err := h.page(ctx, f); err != nil {
			return err
		}
	}
}

func (h *handler) page(ctx context.Context, f Fetch) error {
	h.shard.keeper.read(f.Bytes)
	h.observe.emit(Event{Kind: EventFetched, Shard: h.shard.Info.ID, Records: int64(len(f.Records)), Bytes: f.Bytes, Lag: f.Lag})
	records := f.Records
	for len(records) > 0 && records[0].Position() <= h.at {
		records = records[1:] // from before a gap, after all
	}
	if len(records) > 0 {
		last := records[len(records)-1].Position()
		if err := h.deliver(ctx, records); err != nil {
			return err
		}
		h.at, h.moved = last, true
	}
	if f.Release != nil {
		f.Release()
	}
	if !f.CaughtUp.IsZero() && startOf(h.shard.Lease()) >= h.at {
		h.shard.CaughtUp(f.CaughtUp)
	}
	return nil
}

// deliver calls fn until it returns nil or ctx ends.
func (h *handler) deliver(ctx context.Context, records []Record) error {
	for attempt := 0; ; attempt++ {
		err := h.fn(ctx, h.shard, records)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h.observe.emit(Event{Kind: EventRetrying, Shard: h.shard.Info.ID, Position: h.at, Reason: "handing over records", Err: err})
		if !pause(ctx, backoff(attempt)) {
			return ctx.Err()
		}
	}
}

func (h *handler) finish(ctx context.Context) error {
	if err := h.deliver(ctx, nil); err != nil {
		return err
	}
	if err := h.shard.Finish(ctx, lease.Sink{}); err != nil {
		return fmt.Errorf("end shard: %w", err)
	}
	return nil
}
