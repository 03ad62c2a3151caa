package awsconf

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// alone takes this machine's own AWS settings out of a test.
func alone(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func keyOf(t *testing.T, cfg aws.Config) string {
	t.Helper()
	c, err := cfg.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.AccessKeyID
}

// A loopback endpoint needs neither credentials nor region; keys that are given, in
// the document or in the environment, are used all the same.
func TestLoopback(t *testing.T) {
	for _, endpoint := range []string{"http://127.0.0.1:4567", "http://localhost:4567", "https://[::1]:4567"} {
		alone(t)
		cfg, err := Load(t.Context(), Settings{Endpoint: endpoint})
		if err != nil || keyOf(t, cfg) != "local" || cfg.Region != "us-east-1" || aws.ToString(cfg.BaseEndpoint) != endpoint {
			t.Errorf("%s: %v, region %s", endpoint, err, cfg.Region)
		}
		t.Setenv("AWS_ACCESS_KEY_ID", "environment")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
		if cfg, err = Load(t.Context(), Settings{Endpoint: endpoint}); err != nil || keyOf(t, cfg) != "environment" {
			t.Errorf("%s with the environment's keys: %v", endpoint, err)
		}
	}
}

// Keys win over a role, which is not assumed then.
func TestKeysWinOverTheRole(t *testing.T) {
	alone(t)
	cfg, err := Load(t.Context(), Settings{
		Region: "eu-west-1", AccessKeyID: "document", SecretAccessKey: "x", Role: "arn:aws:iam::222233334444:role/r",
	})
	if err != nil || keyOf(t, cfg) != "document" {
		t.Errorf("got %v", err)
	}
}

// What is missing is named in one line.
func TestMissingSettings(t *testing.T) {
	alone(t)
	for want, s := range map[string]Settings{
		"no AWS region":          {},
		"must be given together": {Region: "eu-west-1", AccessKeyID: "a"},
		"is not a URL":           {Endpoint: "127.0.0.1:4567"},
	} {
		if _, err := Load(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	cfg, err := Load(t.Context(), Settings{Region: "eu-west-1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = cfg.Credentials.Retrieve(t.Context())
	if err = Explain(errors.Join(errors.New("get credentials: "), err)); !strings.HasPrefix(err.Error(), "no usable AWS credentials") {
		t.Errorf("got %v", err)
	}
	if plain := errors.New("x"); Explain(plain) != plain || Explain(nil) != nil {
		t.Error("another error was changed")
	}
}

// closing is a body like the SDK's: after Close it can't be read.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// next is an HTTP client that keeps what it is asked.
type next struct {
	body    io.ReadCloser
	getBody func() (io.ReadCloser, error)
}

func (n *next) Do(r *http.Request) (*http.Response, error) {
	n.body, n.getBody = r.Body, r.GetBody
	return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
}

// The request's body is in memory by the time that net/http sees it, and its own is
// read and closed: what closes it early takes nothing away.
func TestBodiesAreWhole(t *testing.T) {
	body := &closing{Reader: strings.NewReader("hello")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1", body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 5
	var n next
	if _, err := (wholeBody{&n}).Do(r); err != nil || !body.closed {
		t.Fatalf("closed %v, %v", body.closed, err)
	}
	again, err := n.getBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []io.Reader{n.body, again} {
		if text, err := io.ReadAll(b); err != nil || !bytes.Equal(text, []byte("hello")) {
			t.Errorf("read %q, %v", text, err)
		}
	}
	r.Body, r.ContentLength = &closing{Reader: strings.NewReader("hell")}, 5
	if _, err := (wholeBody{&n}).Do(r); err == nil {
		t.Error("a body that ends early was sent")
	}
}
