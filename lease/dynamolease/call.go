package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/kinetl/kinetl/lease"
)

// call makes a request, in its turn, within the bound of one call. Attempts that
// DynamoDB throttled are repeated until then, with jitter, whatever kind they are.
// Those that may have been carried out are repeated if they only read: a conditional
// write meets its own first attempt, and only who keeps the lease can tell.
func (s *Store) call(ctx context.Context, again retry.IsErrorRetryables, do func(context.Context) error) error {
	return s.within(ctx, s.o.Call, again, do)
}

// controlCall bounds a request about a table, which no lease waits for.
const controlCall = 30 * time.Second

// control is call for requests about tables.
func (s *Store) control(ctx context.Context, again retry.IsErrorRetryables, do func(context.Context) error) error {
	return s.within(ctx, controlCall, again, do)
}

var throttled = retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}

func (s *Store) within(ctx context.Context, bound time.Duration, again retry.IsErrorRetryables, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := s.attempt(ctx, do)
		if err == nil || again.IsErrorRetryable(err) != aws.TrueTernary {
			return err
		}
		if !wait(ctx, backoff(attempt)) {
			if throttled.IsErrorThrottle(err) == aws.TrueTernary {
				err = fmt.Errorf("%w: %w", lease.ErrBusy, err)
			}
			return fmt.Errorf("%w; given up after %d attempts: %w", err, attempt+1, ctx.Err())
		}
	}
}

func (s *Store) attempt(ctx context.Context, do func(context.Context) error) error {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.slots }()
	err := do(ctx)
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// written is what may be repeated of writes: requests that were not carried out.
var written = retry.IsErrorRetryables{
	retry.NoRetryCanceledError{},
	retry.RetryableError{}, // of the SDK's: a clock that is off, put right for the next attempt
	retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes},
}

// read is what may be repeated of reads.
var read = retry.IsErrorRetryables(retry.DefaultRetryables)

// backoff is how long to wait before attempt n+1: up to 50 ms, doubling to 1 s.
func backoff(n int) time.Duration {
	return rand.N(50*time.Millisecond<<min(n, 5)) + time.Millisecond
}

// wait waits, and reports whether ctx is still alive.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
