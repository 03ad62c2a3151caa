package kinesistest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	targetPrefix   = "Kinesis_20131202."
	maxRequestBody = 16 << 20
)

// request is one call on its way through the server.
type request struct {
	Call
	gone     <-chan struct{} // closed when the client hangs up
	protocol protocol
	body     []byte
	do       Action
	now      time.Time
}

// page is an answer that writes its own body.
type page interface {
	write(w http.ResponseWriter, p protocol) error
}

// ServeHTTP answers POST with an X-Amz-Target, and any GET with 200, for health
// checks. A lost answer (see LoseAnswer) panics with http.ErrAbortHandler, as
// net/http asks for.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		fmt.Fprintln(w, "kinesis test server,", s.opts.Region)
		return
	}
	q := &request{gone: r.Context().Done(), now: s.now()}
	h := w.Header()
	h.Set("Date", q.now.UTC().Format(http.TimeFormat))
	h.Set("X-Amzn-Requestid", requestID())

	err := q.read(r)
	h.Set("Content-Type", q.protocol.contentType())
	var out any
	if err == nil {
		q.N = s.log.number(q.Op)
		out, err = s.answer(q)
	}
	if q.do.lose {
		q.Code = "LostAnswer"
		s.log.add(q.Call)
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		e := asAPIError(err)
		q.Code = e.code
		s.log.add(q.Call)
		out = map[string]string{"__type": e.code, "message": e.message}
		q.send(w, e.status, out)
		return
	}
	s.log.add(q.Call)
	if p, ok := out.(page); ok {
		p.write(w, q.protocol) // an error here is the client's going away
		return
	}
	q.send(w, http.StatusOK, out)
}

func asAPIError(err error) *apiError {
	var e *apiError
	if errors.As(err, &e) {
		return e
	}
	return &apiError{http.StatusInternalServerError, "InternalFailure", err.Error()}
}

// read takes protocol, action and body off the wire.
func (q *request) read(r *http.Request) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case typeCBOR:
		q.protocol, q.CBOR = protocolCBOR, true
	case typeJSON, "application/json":
	default:
		return refuse("UnknownOperationException", "Content-Type %q is neither %s nor %s.", kind, typeJSON, typeCBOR)
	}
	op, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), targetPrefix)
	if r.Method != http.MethodPost || !ok {
		return refuse("UnknownOperationException", "Expected POST with X-Amz-Target: %s<action>.", targetPrefix)
	}
	q.Op, q.At = op, q.now
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxRequestBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &apiError{http.StatusRequestEntityTooLarge, "RequestEntityTooLargeException", "The request is larger than " + strconv.Itoa(maxRequestBody) + " bytes."}
	}
	q.body = body
	return err
}

// answer carries out an action. This switch is the list of what the server knows.
func (s *Server) answer(q *request) (any, error) {
	switch q.Op {
	case "AddTagsToStream":
		return serve(s, q, s.addTagsToStream)
	case "CreateStream":
		return serve(s, q, s.createStream)
	case "DecreaseStreamRetentionPeriod":
		return serve(s, q, s.decreaseRetention)
	case "DeleteStream":
		return serve(s, q, s.deleteStream)
	case "DeregisterStreamConsumer":
		return serve(s, q, s.deregisterStreamConsumer)
	case "DescribeLimits":
		return serve(s, q, s.describeLimits)
	case "DescribeStream":
		return serve(s, q, s.describeStream)
	case "DescribeStreamConsumer":
		return serve(s, q, s.describeStreamConsumer)
	case "DescribeStreamSummary":
		return serve(s, q, s.describeStreamSummary)
	case "GetRecords":
		return serve(s, q, s.getRecords)
	case "GetShardIterator":
		return serve(s, q, s.getShardIterator)
	case "IncreaseStreamRetentionPeriod":
		return serve(s, q, s.increaseRetention)
	case "ListShards":
		return serve(s, q, s.listShards)
	case "ListStreamConsumers":
		return serve(s, q, s.listStreamConsumers)
	case "ListStreams":
		return serve(s, q, s.listStreams)
	case "ListTagsForStream":
		return serve(s, q, s.listTagsForStream)
	case "MergeShards":
		return serve(s, q, s.mergeShards)
	case "PutRecord":
		return serve(s, q, s.putRecord)
	case "PutRecords":
		return serve(s, q, s.putRecords)
	case "RegisterStreamConsumer":
		return serve(s, q, s.registerStreamConsumer)
	case "RemoveTagsFromStream":
		return serve(s, q, s.removeTagsFromStream)
	case "SplitShard":
		return serve(s, q, s.splitShard)
	case "SubscribeToShard":
		return serve(s, q, s.subscribeToShard)
	case "UpdateMaxRecordSize":
		return serve(s, q, s.updateMaxRecordSize)
	case "UpdateShardCount":
		return serve(s, q, s.updateShardCount)
	}
	return nil, refuse("UnknownOperationException", "The action %q is not known to this server.", q.Op)
}

// targeted inputs tell the call log and the faults which stream and shard they mean.
type targeted interface {
	target() (stream, shard string)
}

// serve decodes the input, lets the faults strike and calls the action.
func serve[In, Out any](s *Server, q *request, op func(*request, *In) (Out, error)) (any, error) {
	in := new(In)
	if err := q.protocol.unmarshal(q.body, in); err != nil {
		return nil, refuse("SerializationException", "The request can't be read as %s: %v", q.protocol.contentType(), err)
	}
	switch t := any(in).(type) {
	case *getRecordsInput:
		q.Stream, q.Shard = s.targetOf(t)
	case targeted:
		q.Stream, q.Shard = t.target()
	}
	q.do = s.faults.strike(&q.Call)
	if q.do.delay > 0 {
		s.pause(q.gone, q.do.delay)
		q.now = s.now()
	}
	if q.do.fail != nil {
		return nil, q.do.fail
	}
	out, err := op(q, in)
	return out, err
}

func (q *request) send(w http.ResponseWriter, status int, out any) {
	var body []byte
	if out != (empty{}) {
		var err error
		if body, err = q.protocol.marshal(out); err != nil {
			status, body = http.StatusInternalServerError, nil
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

// empty is the answer of actions that answer nothing.
type empty struct{}

func requestID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&15|0x40, b[8]&63|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
