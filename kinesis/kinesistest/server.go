package kinesistest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options of a server. The zero value serves us-east-1 of account 000000000000
// with the service's limits, on a free port of 127.0.0.1.
type Options struct {
	Addr      string // to listen on; default 127.0.0.1:0
	Region    string // default us-east-1
	AccountID string // default 000000000000

	// Now is the service's clock: arrival times, retention, expiry of iterators,
	// limits and the Date header follow it. It is called from many goroutines.
	// Default time.Now.
	Now func() time.Time

	// NoLimits switches the rate limits per shard off: calls, records and bytes per
	// second. Limits of a single request stay.
	NoLimits bool

	// StreamTransition is how long a stream stays CREATING, UPDATING or DELETING,
	// and a consumer CREATING or DELETING,
	// by the service's clock. Default 0: changes are done when the call returns.
	StreamTransition time.Duration

	// ShardLimit is how many open shards the account may have. Default 20000.
	ShardLimit int

	// ConsumerLimit is how many consumers a stream may have. Default 20, the
	// service's but for On-demand Advantage.
	ConsumerLimit int

	// SubscriptionLife is how long SubscribeToShard answers, by the service's clock.
	// Default 5 minutes, the service's.
	SubscriptionLife time.Duration

	// TLS serves HTTPS, over HTTP/2 to clients that speak it, with a certificate made at start; see Server.CertPool.
	TLS bool
}

// Server is one region of one account. Its methods may be called from any goroutine.
type Server struct {
	opts     Options
	ownClock bool // Options.Now was given
	seal     sealer

	mu      sync.Mutex // held before a stream's
	streams map[string]*stream
	lastUID uint64
	past    map[string]past // deleted streams

	log    callLog
	faults faults
	pages  sync.Pool // *[]byte, JSON answers of GetRecords

	closing chan struct{}
	once    sync.Once
	http    *http.Server
	url     string
	pool    *x509.CertPool
	leaf    *x509.Certificate
	served  chan error
}

// New makes a server that listens nowhere: use it as an http.Handler, or through
// Transport. It starts no goroutine and needs no Close.
func New(opts Options) *Server {
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	if opts.Region == "" {
		opts.Region = "us-east-1"
	}
	if opts.AccountID == "" {
		opts.AccountID = "000000000000"
	}
	ownClock := opts.Now != nil
	if !ownClock {
		opts.Now = time.Now
	}
	if opts.ShardLimit == 0 {
		opts.ShardLimit = 20000
	}
	if opts.ConsumerLimit == 0 {
		opts.ConsumerLimit = 20
	}
	if opts.SubscriptionLife == 0 {
		opts.SubscriptionLife = 5 * time.Minute
	}
	s := &Server{
		opts: opts, ownClock: ownClock,
		streams: map[string]*stream{},
		past:    map[string]past{},
		closing: make(chan struct{}),
		url:     "http://kinesistest.invalid",
	}
	rand.Read(s.seal.key[:])
	s.log.counts = map[string]int{}
	return s
}

// Start makes a server and listens on Options.Addr. End it with Close.
func Start(opts Options) (*Server, error) {
	s := New(opts)
	ln, err := net.Listen("tcp", s.opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("kinesis test server: %w", err)
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second}
	scheme, serve := "http", s.http.Serve
	if opts.TLS {
		cert, pool, err := selfSigned(ln.Addr())
		if err != nil {
			ln.Close()
			return nil, fmt.Errorf("kinesis test server: %w", err)
		}
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		serve = func(ln net.Listener) error { return s.http.ServeTLS(ln, "", "") }
		scheme, s.pool, s.leaf = "https", pool, cert.Leaf
	}
	s.url = scheme + "://" + ln.Addr().String()
	s.served = make(chan error, 1)
	go func() { s.served <- serve(ln) }()
	return s, nil
}

// URL is the endpoint to give to a client. For a server from New it is a name that
// resolves nowhere, good for Transport only.
func (s *Server) URL() string { return s.url }

// CertPool holds the certificate of a server started with Options.TLS, else nil.
func (s *Server) CertPool() *x509.CertPool { return s.pool }

// Close ends delayed calls, gives calls in flight half a second, cuts what is left
// and waits for the listener's goroutine. It may be called twice.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		if s.http == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			s.http.Close()
		}
		if e := <-s.served; !errors.Is(e, http.ErrServerClosed) {
			err = e
		}
	})
	return err
}

func (s *Server) now() time.Time { return s.opts.Now() }

func (s *Server) arn(name string) string {
	return "arn:aws:kinesis:" + s.opts.Region + ":" + s.opts.AccountID + ":stream/" + name
}
