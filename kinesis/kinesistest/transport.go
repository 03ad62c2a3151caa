package kinesistest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
)

// Transport carries requests to the server without a socket, whatever host they
// name. The call is answered in the caller's goroutine, so it works inside a
// testing/synctest bubble. A lost answer is io.ErrUnexpectedEOF.
//
// An event stream alone has a goroutine of its own, which ends with the body: nothing
// is sent before the client reads.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ s *Server }

func (t transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := r.Clone(ctx)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	if r.Header.Get("X-Amz-Target") == targetPrefix+"SubscribeToShard" {
		return t.stream(in)
	}
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if p != nil {
			panic(p)
		}
	}()
	w := &recorder{header: http.Header{}}
	t.s.ServeHTTP(w, in)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(bytes.NewReader(w.body.Bytes())),
		ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// stream carries a request whose answer is read while it is written.
func (t transport) stream(in *http.Request) (*http.Response, error) {
	// The goroutine below reads the body after RoundTrip has returned.
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(in.Context())
	in = in.WithContext(ctx)
	in.Body = io.NopCloser(bytes.NewReader(body))
	read, write := io.Pipe()
	stop := context.AfterFunc(ctx, func() { read.CloseWithError(context.Cause(ctx)) })
	w := &streamer{header: http.Header{}, body: write, begun: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.WriteHeader(http.StatusOK)
		defer func() {
			switch p := recover(); p {
			case nil:
				write.Close()
			case http.ErrAbortHandler:
				w.lost = w.status == 0
				write.CloseWithError(io.ErrUnexpectedEOF)
			default:
				panic(p)
			}
		}()
		t.s.ServeHTTP(w, in)
	}()
	<-w.begun
	end := func() { stop(); cancel(); read.Close(); <-done }
	if err := ctx.Err(); err != nil || w.lost {
		end()
		return nil, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: -1, Request: in,
		Body: &streamBody{read, end},
	}, nil
}

// streamer passes an answer on.
type streamer struct {
	header, sent http.Header
	body         *io.PipeWriter
	status       int
	begun        chan struct{} // closed with the header, or when there is no answer
	lost         bool
}

func (w *streamer) Header() http.Header { return w.header }

func (w *streamer) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	}
}

func (w *streamer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

type streamBody struct {
	io.Reader
	end func()
}

func (b *streamBody) Close() error {
	b.end()
	return nil
}
