package kinesistest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fxamacker/cbor/v2"
)

const (
	typeJSON = "application/x-amz-json-1.1"
	typeCBOR = "application/x-amz-cbor-1.1"
)

// protocol is one of the two wire formats. Documents are the same in both: JSON
// has base64 for blobs and seconds with a fraction for instants, CBOR has byte
// strings and tag 1 around whole milliseconds, which is not what RFC 8949 says of
// tag 1 but what the AWS SDKs send and expect.
type protocol bool

const (
	protocolJSON protocol = false
	protocolCBOR protocol = true
)

func (p protocol) contentType() string {
	if p == protocolCBOR {
		return typeCBOR
	}
	return typeJSON
}

func (p protocol) unmarshal(body []byte, into any) error {
	if p == protocolCBOR {
		if len(body) == 0 {
			return nil
		}
		return cbor.Unmarshal(body, into)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	return json.Unmarshal(body, into)
}

func (p protocol) marshal(v any) ([]byte, error) {
	if p == protocolCBOR {
		return cbor.Marshal(v)
	}
	return json.Marshal(v)
}

// instant is a time in a document, to the millisecond.
type instant time.Time

func (t instant) MarshalJSON() ([]byte, error) {
	return appendSeconds(nil, time.Time(t).UnixMilli()), nil
}

func (t *instant) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.Abs(f) > 1e12 {
		return fmt.Errorf("timestamp %q is not a number of seconds", b)
	}
	*t = instant(time.UnixMilli(int64(math.Round(f * 1000))).UTC())
	return nil
}

func (t instant) MarshalCBOR() ([]byte, error) {
	return cbor.Marshal(cbor.Tag{Number: 1, Content: time.Time(t).UnixMilli()})
}

func (t *instant) UnmarshalCBOR(b []byte) error {
	var tag cbor.RawTag
	if err := cbor.Unmarshal(b, &tag); err != nil || tag.Number != 1 {
		return fmt.Errorf("timestamp is not an item of tag 1")
	}
	var f float64
	if err := cbor.Unmarshal(tag.Content, &f); err != nil {
		var ms int64
		if err := cbor.Unmarshal(tag.Content, &ms); err != nil {
			return fmt.Errorf("timestamp is not a number of milliseconds")
		}
		f = float64(ms)
	}
	if !(math.Abs(f) <= 1e15) {
		return fmt.Errorf("timestamp is out of range")
	}
	*t = instant(time.UnixMilli(int64(f)).UTC())
	return nil
}

// appendSeconds writes milliseconds as seconds with a fraction.
func appendSeconds(b []byte, ms int64) []byte {
	if ms < 0 {
		return strconv.AppendFloat(b, float64(ms)/1000, 'f', 3, 64)
	}
	b = strconv.AppendInt(b, ms/1000, 10)
	f := ms % 1000
	return append(b, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string; partition keys are nearly always plain ASCII.
func appendString(b []byte, s []byte) []byte {
	b = append(b, '"')
	for i, c := range s {
		if c >= 0x80 {
			quoted, _ := json.Marshal(string(s[i:])) // a string: can't fail
			return append(b, quoted[1:]...)
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
