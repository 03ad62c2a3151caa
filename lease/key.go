package lease

import (
	"fmt"
	"strconv"
	"strings"
)

// Key is a lease key taken apart. KCL has two forms: the bare shard id, in
// applications that read one stream, and account:stream:creationEpoch:shardId in
// those that may read several. An application uses one of them for all its leases;
// the rows of the other form are invisible to it (R23).
type Key struct {
	Account string // digits; empty in the short form
	Stream  string // name; empty in the short form
	Epoch   int64  // when the stream was created, in whole seconds; 0 in the short form
	Shard   string // shard id
}

// Short reports whether the key is a bare shard id.
func (k Key) Short() bool { return k.Stream == "" }

// String is the key as it is stored.
func (k Key) String() string {
	if k.Short() {
		return k.Shard
	}
	return k.StreamName() + ":" + k.Shard
}

// StreamName is what KCL calls so: account:stream:creationEpoch. Empty in the short form.
func (k Key) StreamName() string {
	if k.Short() {
		return ""
	}
	return k.Account + ":" + k.Stream + ":" + strconv.FormatInt(k.Epoch, 10)
}

// ParseKey takes a stored key apart. Its String is the same text again. Source of
// the long form: KCL's stream identifiers, digits, a name without colon, digits.
func ParseKey(text string) (Key, error) {
	f := strings.Split(text, ":")
	if len(f) == 1 && text != "" {
		return Key{Shard: text}, nil
	}
	if len(f) != 4 || !isDigits(f[0]) || f[1] == "" || f[3] == "" {
		return Key{}, fmt.Errorf("lease key %q is neither a shard id nor account:stream:creationEpoch:shardId", text)
	}
	epoch, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || strconv.FormatInt(epoch, 10) != f[2] || epoch <= 0 {
		return Key{}, fmt.Errorf("lease key %q: %q is not the instant of a stream's creation", text, f[2])
	}
	return Key{Account: f[0], Stream: f[1], Epoch: epoch, Shard: f[3]}, nil
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// Group is the part of a lease key that the shards of one stream share.
func Group(key string) string { return key[:strings.LastIndexByte(key, ':')+1] }

// StreamID names a stream beyond its name: one that was deleted and created anew is
// another (R1). arn is the stream's, created its creation time in whole seconds.
func StreamID(arn string, created int64) string {
	return arn + "@" + strconv.FormatInt(created, 10)
}

// Form is which of the two forms a table's keys have.
type Form uint8

const (
	FormNone  Form = iota // no leases yet: the application decides
	FormShort             // shard ids: one stream
	FormLong              // account:stream:creationEpoch:shardId: any number of streams
)

func (f Form) String() string { return [...]string{"none", "single-stream", "multi-stream"}[f] }

// FormOf is the form of a table's keys. It is an error if a key has neither or the
// table holds both: whoever switched an application from one to the other left rows
// behind that say nothing about how far it has read.
func FormOf(leases []Lease) (Form, error) {
	form, first := FormNone, ""
	for _, l := range leases {
		k, err := ParseKey(l.Key)
		if err != nil {
			return FormNone, err
		}
		f := FormLong
		if k.Short() {
			f = FormShort
		}
		if form != FormNone && f != form {
			return FormNone, fmt.Errorf("lease table: %s has the %s form and %s the %s one: delete the rows of the form that the application no longer uses", first, form, l.Key, f)
		}
		form, first = f, l.Key
	}
	return form, nil
}
