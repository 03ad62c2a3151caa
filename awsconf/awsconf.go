// Package awsconf turns settings into the AWS SDK's configuration: credentials,
// region and endpoint of one service, each apart from those of the others.
package awsconf

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
)

// Settings says how to reach one service. Zero fields take the SDK's defaults: the
// environment, the shared files, then the machine's role.
type Settings struct {
	Region          string
	Endpoint        string // base URL; a loopback one needs no credentials
	Profile         string // of the shared files
	AccessKeyID     string // with SecretAccessKey; they win over Role
	SecretAccessKey string
	Role            string // ARN of a role to assume
	ExternalID      string // that the role's trust policy asks for
}

// Load builds the configuration. It calls no service; a role is assumed with the
// first call of the client that uses it. Errors say which setting is missing.
func Load(ctx context.Context, s Settings) (aws.Config, error) {
	if (s.AccessKeyID == "") != (s.SecretAccessKey == "") {
		return aws.Config{}, fmt.Errorf("accessKeyId and secretAccessKey must be given together")
	}
	local, err := isLoopback(s.Endpoint)
	if err != nil {
		return aws.Config{}, err
	}
	opts := []func(*config.LoadOptions) error{
		config.WithHTTPClient(httpClient()),
		config.WithLogger(logging.Nop{}), // what matters comes back as an error
	}
	if s.Region != "" {
		opts = append(opts, config.WithRegion(s.Region))
	}
	if s.Profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(s.Profile))
	}
	switch {
	case s.AccessKeyID != "":
		opts = append(opts, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(s.AccessKeyID, s.SecretAccessKey, "")))
	case local && s.Role == "" && s.Profile == "" && os.Getenv("AWS_ACCESS_KEY_ID") == "":
		// A server on this machine checks no signatures. Looking for credentials
		// would end in a slow and confusing search for an EC2 role.
		opts = append(opts, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("local", "local", "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load AWS configuration: %w", err)
	}
	cfg.HTTPClient = wholeBody{cfg.HTTPClient}
	if cfg.Region == "" && local {
		cfg.Region = "us-east-1"
	}
	if cfg.Region == "" {
		return aws.Config{}, fmt.Errorf("no AWS region: set region in the document, --region, or AWS_REGION")
	}
	if s.Role != "" && s.AccessKeyID == "" {
		provider := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), s.Role, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = "kinetl"
			if s.ExternalID != "" {
				o.ExternalID = aws.String(s.ExternalID)
			}
		})
		cfg.Credentials = aws.NewCredentialsCache(provider)
	}
	if s.Endpoint != "" {
		cfg.BaseEndpoint = aws.String(s.Endpoint)
	}
	return cfg, nil
}

// Explain adds what to do to an error of a call that found no credentials; any
// other error is returned as it is.
func Explain(err error) error {
	if err == nil || !strings.Contains(err.Error(), "get credentials:") {
		return err
	}
	return fmt.Errorf("no usable AWS credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID, name a role in the document, or run where the machine has one: %w", err)
}

func isLoopback(endpoint string) (bool, error) {
	if endpoint == "" {
		return false, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("endpoint %q is not a URL such as https://host:port", endpoint)
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(), nil
}

// idleConnections are kept to a service: one for each shard that is read at full speed.
// They cost nothing until that many calls were in flight at once.
const idleConnections = 512

// httpClient keeps more connections than the SDK's ten per host, and speaks HTTP/1.1,
// which costs less per polled page than HTTP/2 does in Go. It is the SDK's own kind of
// client, to which the SDK adds AWS_CA_BUNDLE.
func httpClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConnections, idleConnections
		t.ResponseHeaderTimeout = 30 * time.Second
		t.ForceAttemptHTTP2 = false
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		// The SDK has cloned a transport that speaks HTTP/2, which net/http noted here:
		// the server would answer in HTTP/2, and not be understood.
		t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	})
}

// wholeBody hands net/http request bodies that lie in memory. The SDK closes its
// own body as soon as the answer's header is there; net/http may still be about to
// read its end then, takes the error for a broken connection, and closes it under
// the answer that is being read. A request that can give its body anew has it in memory
// already; the SDK makes none.
type wholeBody struct{ next aws.HTTPClient }

const wholeBodyLimit = 16 << 20

func (c wholeBody) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.GetBody != nil || r.ContentLength <= 0 || r.ContentLength > wholeBodyLimit {
		return c.next.Do(r)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	_ = r.Body.Close() // it was read to its end
	if err != nil {
		return nil, fmt.Errorf("read request body: %w", err)
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return c.next.Do(r)
}
