package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// observed is a request as a server gets it.
type observed struct {
	*http.Request
	body []byte
}

// service is a test server with one shard, and what it was asked for.
type service struct {
	*kinesistest.Server
	requests []observed // of GetRecords
	answers  func(*http.Response)
	through  int // calls of GetRecords that the SDK made
	iterator string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetRecords") {
		s.requests = append(s.requests, observed{r.Clone(context.Background()), body})
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := s.Transport().RoundTrip(r)
	if err == nil && s.answers != nil {
		s.answers(resp)
	}
	return resp, err
}

// against runs a test in virtual time.
func against(t *testing.T, provider aws.CredentialsProvider, test func(*testing.T, *service, *Caller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &service{Server: kinesistest.New(kinesistest.Options{NoLimits: true})}
		if err := s.CreateStream("s", 1); err != nil {
			t.Fatal(err)
		}
		c := kinesis.New(kinesis.Options{
			Region: "eu-west-1", BaseEndpoint: aws.String("http://kinesis.test:4566"), AppID: "kinetl",
			HTTPClient: &http.Client{Transport: s}, Credentials: provider, Retryer: aws.NopRetryer{},
			APIOptions: []func(*middleware.Stack) error{func(stack *middleware.Stack) error {
				if stack.ID() == "GetRecords" {
					s.through++
				}
				return nil
			}},
		})
		s.iterator = *iterator(t, c, shard0)
		test(t, s, NewCaller(c, s.StreamARN("s")))
	})
}

// rotating gives other keys with each day, every other one with a token.
type rotating struct{ day int }

func (r *rotating) Retrieve(context.Context) (aws.Credentials, error) {
	c := aws.Credentials{AccessKeyID: fmt.Sprint("KEY", r.day), SecretAccessKey: fmt.Sprint("secret", r.day)}
	if r.day%2 == 0 {
		c.SessionToken = fmt.Sprint("token", r.day)
	}
	return c, nil
}

// signature is what a request has to be signed with, by the SDK's own signer.
func signature(t *testing.T, r observed, c aws.Credentials) string {
	t.Helper()
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(r.body)
	plain := r.Clone(t.Context())
	plain.Header.Del("Authorization")
	plain.ContentLength = int64(len(r.body))
	if err := v4.NewSigner().SignHTTP(t.Context(), c, plain, hex.EncodeToString(hash[:]), "kinesis", "eu-west-1", at); err != nil {
		t.Fatal(err)
	}
	return plain.Header.Get("Authorization")
}

// What is sent without the SDK is what the SDK sends: each header, and a signature of
// now with the keys of now.
func TestSentAgainAsTheSDKSends(t *testing.T) {
	for _, useCBOR := range []bool{false, true} {
		keys := &rotating{}
		against(t, keys, func(t *testing.T, s *service, c *Caller) {
			began := time.Now()
			for range 30 {
				page, err := c.GetRecords(t.Context(), s.iterator, 123, useCBOR)
				if err != nil {
					t.Fatal(err)
				}
				s.iterator = strings.Clone(page.Next) // it lives for five minutes
				page.Release()
				keys.day++
				time.Sleep(time.Minute)
			}
			ids := map[string]bool{}
			for i, r := range s.requests {
				creds, _ := (&rotating{i}).Retrieve(t.Context())
				if got, want := r.Header.Get("Authorization"), signature(t, r, creds); got != want {
					t.Errorf("cbor %v: request %d is signed %q, want %q", useCBOR, i, got, want)
				}
				if got, want := r.Header.Get("X-Amz-Date"), began.Add(time.Duration(i)*time.Minute).UTC().Format("20060102T150405Z"); got != want {
					t.Errorf("cbor %v: request %d is signed for %s, want %s", useCBOR, i, got, want)
				}
				if got := r.Header.Get("X-Amz-Security-Token"); got != creds.SessionToken {
					t.Errorf("cbor %v: request %d has token %q", useCBOR, i, got)
				}
				ids[r.Header.Get("Amz-Sdk-Invocation-Id")] = true
				headers, first := common(r.Header), common(s.requests[0].Header)
				if !reflect.DeepEqual(headers, first) || r.URL.String() != s.requests[0].URL.String() || len(r.body) != len(s.requests[0].body) {
					t.Errorf("cbor %v: request %d to %s has headers %v and %q, want %v and %q", useCBOR, i, r.URL, headers, r.body, first, s.requests[0].body)
				}
			}
			if len(s.requests) != 30 || s.through != 6 || len(ids) != 30 {
				t.Errorf("cbor %v: %d requests, %d of them through the SDK, with %d ids", useCBOR, len(s.requests), s.through, len(ids))
			}
		})
	}
}

// common is what two requests have in common that are sent by the same client.
func common(h http.Header) http.Header {
	h = h.Clone()
	h.Del("X-Amz-Security-Token")
	for _, own := range []string{"Authorization", "X-Amz-Date", "Amz-Sdk-Invocation-Id"} {
		if h.Get(own) == "" {
			h.Set("Without", own)
		}
		h.Del(own)
	}
	return h
}

// This machine's clock may be wrong: the SDK learns that from the service's answers, and
// what is sent again is signed for the time that the SDK would sign for.
func TestSignedForTheServicesTime(t *testing.T) {
	against(t, &rotating{}, func(t *testing.T, s *service, c *Caller) {
		const wrong = time.Hour
		s.answers = func(r *http.Response) {
			r.Header.Set("Date", time.Now().Add(wrong).UTC().Format(http.TimeFormat))
		}
		refuse := s.Fault(kinesistest.Fault{Op: "GetRecords", Do: kinesistest.Fail(400, "InvalidSignatureException", "Signature expired")})
		if _, err := c.GetRecords(t.Context(), s.iterator, 100, true); err == nil {
			t.Fatal("no error")
		}
		refuse()
		for range 3 {
			page, err := c.GetRecords(t.Context(), s.iterator, 100, true)
			if err != nil {
				t.Fatal(err)
			}
			page.Release()
		}
		for i, r := range s.requests[1:] {
			if got, want := r.Header.Get("X-Amz-Date"), time.Now().Add(wrong).UTC().Format("20060102T150405Z"); got != want {
				t.Errorf("request %d is signed for %s, want %s", i+1, got, want)
			}
		}
	})
}

var id = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// Errors are the SDK's own, type by type and word by word, in either format.
func TestErrorsAreTheSDKs(t *testing.T) {
	faults := map[string]kinesistest.Action{
		"throttled":   kinesistest.Throttle(),
		"expired":     kinesistest.Fail(400, "ExpiredIteratorException", "Iterator expired."),
		"denied":      kinesistest.Fail(400, "AccessDeniedException", "no"),
		"gone":        kinesistest.Fail(400, "ResourceNotFoundException", "Stream s not found."),
		"unknown":     kinesistest.Fail(400, "SomethingNewException", "new"),
		"unavailable": kinesistest.Fail(503, "ServiceUnavailable", ""),
	}
	for name, fault := range faults {
		for _, useCBOR := range []bool{false, true} {
			against(t, &rotating{}, func(t *testing.T, s *service, c *Caller) {
				call := func() error {
					page, err := c.GetRecords(t.Context(), s.iterator, 100, useCBOR)
					if err == nil {
						page.Release()
					}
					return err
				}
				fail := func() error {
					remove := s.Fault(kinesistest.Fault{Op: "GetRecords", Do: fault})
					defer remove()
					return call()
				}
				through := fail()
				if err := call(); err != nil { // through the SDK again, and with success
					t.Fatal(err)
				}
				before := s.through
				again := fail()
				if s.through != before {
					t.Errorf("%s, cbor %v: it was not sent again", name, useCBOR)
				}
				text := func(err error) string { return id.ReplaceAllString(fmt.Sprint(err), "ID") }
				if through == nil || text(through) != text(again) {
					t.Errorf("%s, cbor %v: got %q, want %q", name, useCBOR, text(again), text(through))
				}
				var a, b smithy.APIError
				if errors.As(through, &a) != errors.As(again, &b) || reflect.TypeOf(a) != reflect.TypeOf(b) {
					t.Errorf("%s, cbor %v: got %T, want %T", name, useCBOR, b, a)
				}
				var ra, rb *awshttp.ResponseError
				if errors.As(through, &ra) != errors.As(again, &rb) || ra != nil && ra.HTTPStatusCode() != rb.HTTPStatusCode() {
					t.Errorf("%s, cbor %v: got %v, want %v", name, useCBOR, rb, ra)
				}
				if err := call(); err != nil || s.through != before+1 {
					t.Errorf("%s, cbor %v: and then %v, %d calls through the SDK", name, useCBOR, err, s.through-before)
				}
			})
		}
	}
}

// A call whose context has ended is the SDK's canceled call.
func TestACanceledCall(t *testing.T) {
	against(t, credentials.NewStaticCredentialsProvider("a", "b", ""), func(t *testing.T, s *service, c *Caller) {
		page, err := c.GetRecords(t.Context(), s.iterator, 100, true)
		if err != nil {
			t.Fatal(err)
		}
		page.Release()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.GetRecords(ctx, s.iterator, 100, true)
		var canceled *aws.RequestCanceledError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &canceled) {
			t.Errorf("got %v", err)
		}
	})
}
