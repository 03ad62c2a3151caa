package awsconf

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// EventStreams is a configuration from Load for answers that are read for minutes, as
// those of Kinesis' SubscribeToShard are. It speaks HTTP/2 to endpoints that do, and
// HTTP/1.1 with a connection for each answer to others. Credentials, region, endpoint
// and certificates are those of cfg.
//
// Window is how many bytes of each answer may wait in memory until somebody reads
// them, over HTTP/2; net/http's own default is 4 MiB. The bytes of all answers on one
// connection are not bounded beyond that: a reader that waits must not hold up others.
func EventStreams(cfg aws.Config, window int) aws.Config {
	whole, ok := cfg.HTTPClient.(wholeBody)
	if !ok {
		return cfg
	}
	client, ok := whole.next.(*awshttp.BuildableClient)
	if !ok {
		return cfg
	}
	cfg.HTTPClient = wholeBody{client.WithTransportOptions(func(t *http.Transport) {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
		t.TLSClientConfig.NextProtos = nil // net/http's to fill in
		t.HTTP2 = &http.HTTP2Config{
			MaxReceiveBufferPerStream: window,
			// A connection that is dead is found out for all its answers at once.
			SendPingTimeout: 15 * time.Second,
			PingTimeout:     15 * time.Second,
		}
	})}
	return cfg
}
