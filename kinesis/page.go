package kinesis

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/kinetl/kinetl/kinesis/wire"
)

// Wire is the format in which GetRecords is asked for.
type Wire string

const (
	WireAuto Wire = "auto" // CBOR until the endpoint shows that it does not speak it (default)
	WireCBOR Wire = "cbor"
	WireJSON Wire = "json"
)

// format is what is known of an endpoint.
type format struct{ state atomic.Int32 }

const (
	formatUnknown int32 = iota
	formatCBOR
	formatJSON
)

// getRecords makes one call. With WireAuto a first answer that is not what the
// service answers in CBOR has the call made again in JSON; if that works the
// endpoint is known not to speak CBOR.
func (s *Source) getRecords(ctx context.Context, st *stream, iterator string, limit int32) (*wire.Page, error) {
	state := s.format.state.Load()
	useCBOR := s.opts.Wire == WireCBOR || s.opts.Wire == WireAuto && state != formatJSON
	page, err := st.caller.GetRecords(ctx, iterator, limit, useCBOR)
	if s.opts.Wire != WireAuto || state != formatUnknown {
		return page, err
	}
	if err == nil {
		s.format.state.CompareAndSwap(formatUnknown, formatCBOR)
		return page, nil
	}
	if isServiceError(err) || ctx.Err() != nil {
		return nil, err
	}
	page, jsonErr := st.caller.GetRecords(ctx, iterator, limit, false)
	if jsonErr != nil {
		return nil, err
	}
	if s.format.state.CompareAndSwap(formatUnknown, formatJSON) && s.opts.Logger != nil {
		s.opts.Logger.Warn("the endpoint does not speak CBOR: reading in JSON, at some three times the cost", "err", err)
	}
	return page, nil
}

// isServiceError reports whether the service understood the call: what it says then
// holds for JSON as well.
func isServiceError(err error) bool {
	var expired *types.ExpiredIteratorException
	var throttled *types.ProvisionedThroughputExceededException
	var invalid *types.InvalidArgumentException
	var kms *types.KMSThrottlingException
	return errors.As(err, &expired) || errors.As(err, &throttled) || errors.As(err, &invalid) || errors.As(err, &kms) || permanent(err)
}

// noRetry leaves repeating to the reader. The SDK's retries of one client draw on
// a common quota: one throttled shard would use up the retries of all others.
func noRetry(o *kinesis.Options) { o.Retryer = aws.NopRetryer{} }
