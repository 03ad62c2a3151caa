// Package wire decodes what GetRecords and SubscribeToShard answer, behind the SDK's
// signing, endpoints, credentials and typed errors. It speaks both formats that the
// service does: CBOR, whose data comes as bytes, and JSON, whose base64 is decoded in
// place. Records are views into the answer's buffer.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"
	"unsafe"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/kinetl/kinetl"
)

// Content types of the two formats.
const (
	jsonType = "application/x-amz-json-1.1"
	cborType = "application/x-amz-cbor-1.1"
)

// maxAnswer bounds what an answer may claim to be: 10 MiB of data in base64, and
// 10,000 records' worth of everything else.
const maxAnswer = 64 << 20

// Page is one answer of GetRecords, or one event of SubscribeToShard. Everything in it
// lives in one buffer, which is the page's, until Release.
type Page struct {
	Records     []kinetl.Record // as they are in the stream: not unpacked
	Bytes       int64           // of data and partition keys
	Lag         time.Duration   // MillisBehindLatest
	Next        string          // NextShardIterator or ContinuationSequenceNumber; empty: the shard ends here
	ChildShards int             // how many are named

	buffer []byte
}

// DecodeError: an answer is not what the service documents.
type DecodeError struct {
	Format string // "CBOR", "JSON", or "a frame" of an event stream
	Offset int    // in the body
	What   string
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("the answer is %s that can't be read at byte %d: %s", e.Format, e.Offset, e.What)
}

// protocol is the client's own protocol but for the answer of GetRecords, and with
// cbor for its request.
type protocol struct {
	smithyhttp.ClientProtocol
	page *Page
	cbor bool
}

func (p *protocol) SerializeRequest(ctx context.Context, op *smithy.OperationSchema, in smithy.Serializable, r *smithyhttp.Request) error {
	if err := p.ClientProtocol.SerializeRequest(ctx, op, in, r); err != nil || !p.cbor {
		return err
	}
	records, ok := in.(*kinesis.GetRecordsInput)
	if !ok {
		return fmt.Errorf("wire: %T is not a request of GetRecords", in)
	}
	body, err := r.SetStream(newBody(appendRequest(nil, records)))
	if err != nil {
		return err
	}
	*r = *body
	r.Header.Set("Content-Type", cborType)
	r.Header.Set("Accept", cborType)
	return nil
}

func (p *protocol) DeserializeResponse(ctx context.Context, schema *smithy.OperationSchema, types *smithy.TypeRegistry, resp *smithyhttp.Response, out smithy.Deserializable) error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isCBOR := media == cborType
	if resp.StatusCode/100 != 2 {
		if isCBOR {
			return p.decodeError(ctx, schema, types, resp, out)
		}
		return p.ClientProtocol.DeserializeResponse(ctx, schema, types, resp, out)
	}
	if err := p.page.read(resp.Response); err != nil {
		return err
	}
	if isCBOR {
		return p.page.decodeCBOR()
	}
	return p.page.decodeJSON()
}

// read takes the whole body into one buffer.
func (p *Page) read(resp *http.Response) error {
	if resp.ContentLength > maxAnswer {
		return fmt.Errorf("GetRecords answered %d bytes, more than an answer can have", resp.ContentLength)
	}
	if n := int(resp.ContentLength); n >= 0 {
		if cap(p.buffer) < n {
			p.buffer = make([]byte, n)
		}
		p.buffer = p.buffer[:n]
		_, err := io.ReadFull(resp.Body, p.buffer)
		return err
	}
	var err error
	p.buffer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(p.buffer) > maxAnswer {
		err = errors.New("GetRecords answered more bytes than an answer can have")
	}
	return err
}

// add makes room for one more record, whose fields the caller fills in.
func (p *Page) add() *kinetl.Record {
	p.Records = append(p.Records, kinetl.Record{})
	return &p.Records[len(p.Records)-1]
}

// pages are pages whose life has ended. A page is some megabyte, and a new one
// would be cleared before it is written over.
var pages sync.Pool

func newPage() *Page {
	if p, ok := pages.Get().(*Page); ok {
		return p
	}
	return &Page{}
}

// Release ends the life of the page and of everything in it. Whoever keeps a view
// beyond that sees another page's bytes.
func (p *Page) Release() {
	if invariants {
		mangle(p.buffer)
	}
	clear(p.Records)
	*p = Page{Records: p.Records[:0], buffer: p.buffer[:0]}
	pages.Put(p)
}

// mangle makes a view that was kept too long conspicuous.
func mangle(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

// view is text in the page's buffer, without a copy. The buffer is not written to
// after it was decoded.
func view(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}
