package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/schemas"
	"github.com/aws/smithy-go"
	smithyrand "github.com/aws/smithy-go/rand"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// resendFor is how long requests are made after the SDK's last one.
const resendFor = 5 * time.Minute

// Caller makes the GetRecords calls of one stream. What the SDK does before and after a
// call costs more than all else that an idle shard does. So only some calls go through
// it: the first, one every five minutes, and the next after one that brought no page,
// so that whatever the SDK knows of clocks, endpoints and credentials comes to bear. The
// others send what that one sent, headers and all, with their own body and signed anew.
//
// A Caller may be used by several goroutines. It repeats nothing.
type Caller struct {
	client *kinesis.Client
	arn    string
	opts   []func(*kinesis.Options)
	json   atomic.Pointer[sent]
	cbor   atomic.Pointer[sent]
}

// NewCaller makes the Caller of the stream that has this ARN; opts are for each call.
func NewCaller(client *kinesis.Client, arn string, opts ...func(*kinesis.Options)) *Caller {
	return &Caller{client: client, arn: arn, opts: opts}
}

// GetRecords asks for one page of at most limit records in the given format. A server
// that answers in the other one is understood. Errors are the SDK's, and a *DecodeError.
func (c *Caller) GetRecords(ctx context.Context, iterator string, limit int32, cbor bool) (*Page, error) {
	// With the ARN, which the iterator seems to make needless: a stream of another account
	// is found by nothing else. Source: KCL sends it since 2.5.3.
	in := &kinesis.GetRecordsInput{ShardIterator: &iterator, Limit: &limit, StreamARN: &c.arn}
	last := &c.json
	if cbor {
		last = &c.cbor
	}
	page := newPage()
	var err error
	if s := last.Load(); s != nil && time.Now().Before(s.until) {
		if err = s.again(ctx, in, page, cbor); err != nil {
			last.CompareAndSwap(s, nil)
		}
	} else {
		s, err = c.call(ctx, in, page, cbor)
		last.Store(s)
	}
	if err != nil {
		page.Release()
		return nil, err
	}
	return page, nil
}

// call goes through the SDK. It returns what was sent, if that can be sent again.
func (c *Caller) call(ctx context.Context, in *kinesis.GetRecordsInput, page *Page, cbor bool) (*sent, error) {
	var s *sent
	_, err := c.client.GetRecords(ctx, in, append(slices.Clip(c.opts), func(o *kinesis.Options) {
		s = &sent{options: *o}
		o.Protocol = &protocol{ClientProtocol: o.Protocol, page: page, cbor: cbor}
		o.HTTPClient = watched{o.HTTPClient, s}
	})...)
	if err != nil || !s.ready(ctx) {
		return nil, err
	}
	return s, nil
}

// sent is what the SDK sent, once it was answered with a page.
type sent struct {
	options kinesis.Options
	request *http.Request // without its body
	body    []byte
	until   time.Time

	ahead           time.Duration // of this machine's clock: what the SDK has learned of the service's
	region, service string        // that it is signed for
}

// watched notes what the SDK sends.
type watched struct {
	kinesis.HTTPClient
	into *sent
}

func (w watched) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it was read to its end
	if err != nil {
		return nil, fmt.Errorf("read request body: %w", err)
	}
	w.into.request, w.into.body = r.Clone(context.Background()), body
	return w.HTTPClient.Do(withBody(r, r.Context(), body))
}

// withBody is r with a body that lies in memory.
func withBody(r *http.Request, ctx context.Context, body []byte) *http.Request {
	r = r.WithContext(ctx)
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	return r
}

// The headers that are each request's own.
const (
	authorization = "Authorization"
	signingDate   = "X-Amz-Date"
	signingToken  = "X-Amz-Security-Token"
	invocation    = "Amz-Sdk-Invocation-Id"
)

// ready finds out how the request was signed. It can be sent again if that yields the
// same signature for the same request.
func (s *sent) ready(ctx context.Context) bool {
	// AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request, SignedHeaders=...
	// Source: AWS Signature Version 4.
	signature := s.request.Header.Get(authorization)
	_, credential, _ := strings.Cut(signature, "AWS4-HMAC-SHA256 Credential=")
	credential, _, _ = strings.Cut(credential, ",")
	scope := strings.Split(credential, "/")
	at, err := time.Parse("20060102T150405Z", s.request.Header.Get(signingDate))
	if err != nil || len(scope) != 5 || s.options.Credentials == nil {
		return false
	}
	now := time.Now()
	s.region, s.service, s.until = scope[2], scope[3], now.Add(resendFor)
	if s.ahead = at.Sub(now).Round(time.Second); s.ahead.Abs() <= 2*time.Second {
		s.ahead = 0 // it was signed before it was sent
	}
	again, err := s.sign(ctx, s.request.Header.Get(invocation), s.body, at)
	return err == nil && again.Header.Get(authorization) == signature
}

// sign makes a request with this body.
func (s *sent) sign(ctx context.Context, id string, body []byte, at time.Time) (*http.Request, error) {
	credentials, err := s.options.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("get credentials: %w", err)
	}
	r := withBody(s.request, ctx, body)
	r.Header = s.request.Header.Clone()
	r.Header.Del(signingToken)
	r.Header.Set(invocation, id)
	hash := sha256.Sum256(body)
	url := *r.URL // the signer writes to it
	r.URL = &url
	return r, s.options.HTTPSignerV4.SignHTTP(ctx, credentials, r, hex.EncodeToString(hash[:]), s.service, s.region, at)
}

var uuid = smithyrand.NewUUID(rand.Reader)

// schema is that of the call, by which the SDK knows the service's errors.
var schema = smithy.NewOperationSchema(schemas.GetRecords, schemas.GetRecordsInput, schemas.GetRecordsOutput)

// again makes the call without the SDK. Errors are made as there.
func (s *sent) again(ctx context.Context, in *kinesis.GetRecordsInput, page *Page, cbor bool) (err error) {
	defer func() {
		if err != nil {
			err = &smithy.OperationError{ServiceID: kinesis.ServiceID, OperationName: "GetRecords", Err: err}
		}
	}()
	body := appendRequest(nil, in)
	if !cbor {
		if body, err = json.Marshal(map[string]any{"ShardIterator": in.ShardIterator, "Limit": in.Limit, "StreamARN": in.StreamARN}); err != nil {
			return err
		}
	}
	id, err := uuid.GetUUID()
	if err != nil {
		return err
	}
	r, err := s.sign(ctx, id, body, time.Now().Add(s.ahead))
	if err != nil {
		return err
	}
	resp, err := s.options.HTTPClient.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return &aws.RequestCanceledError{Err: err}
		}
		return &smithyhttp.RequestSendError{Err: err}
	}
	defer resp.Body.Close()
	p := &protocol{ClientProtocol: s.options.Protocol, page: page, cbor: cbor}
	response := &smithyhttp.Response{Response: resp}
	if err := p.DeserializeResponse(ctx, schema, kinesis.TypeRegistry, response, &kinesis.GetRecordsOutput{}); err != nil {
		return &awshttp.ResponseError{
			ResponseError: &smithyhttp.ResponseError{Response: response, Err: err}, RequestID: resp.Header.Get("X-Amzn-Requestid"),
		}
	}
	return nil
}
