package lease

import (
	"strings"
	"testing"
)

// R23: the two forms of KCL's lease keys.
func TestKeys(t *testing.T) {
	for text, want := range map[string]Key{
		"shardId-000000000000":                                {Shard: "shardId-000000000000"},
		"111122223333:orders:1700000000:shardId-000000000002": {Account: "111122223333", Stream: "orders", Epoch: 1700000000, Shard: "shardId-000000000002"},
		"000000000000:a.b-c_D:1:shardId-000000000002":         {Account: "000000000000", Stream: "a.b-c_D", Epoch: 1, Shard: "shardId-000000000002"},
	} {
		got, err := ParseKey(text)
		if err != nil || got != want || got.String() != text || got.Short() != (want.Stream == "") {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a:b", "s:1", "a:orders:1:s", "1:orders:x:s", "1:orders:-1:s", "1:orders:0:s", "1:orders:01:s", "1::1:s", "1:orders:1:", "1:orders:1:s:s", "1:orders:99999999999999999999:s"} {
		if k, err := ParseKey(text); err == nil {
			t.Errorf("%q was read as %+v", text, k)
		}
	}
}

func TestFormOf(t *testing.T) {
	const short, long = "shardId-000000000000", "1:orders:1:shardId-000000000000"
	for _, tt := range []struct {
		keys []string
		want Form
		err  string
	}{
		{nil, FormNone, ""},
		{[]string{short, "shardId-000000000001"}, FormShort, ""},
		{[]string{long}, FormLong, ""},
		{[]string{short, long}, FormNone, "delete the rows"},
		{[]string{"a:b"}, FormNone, "neither"},
	} {
		var leases []Lease
		for _, k := range tt.keys {
			leases = append(leases, Lease{Key: k})
		}
		got, err := FormOf(leases)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: got %s, %v", tt.keys, got, err)
		}
	}
}

func TestStreamID(t *testing.T) {
	if got := StreamID("arn:aws:kinesis:eu-west-1:111122223333:stream/orders", 1700000000); got != "arn:aws:kinesis:eu-west-1:111122223333:stream/orders@1700000000" {
		t.Error(got)
	}
}

// What is read as a key is stored as the same text again, or a worker would look for
// a row that it did not see.
func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"shardId-000000000000", "111122223333:orders:1700000000:shardId-000000000002", "a:b", "1:o:01:s", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := ParseKey(text); err == nil && (k.String() != text || Group(text)+k.Shard != text) {
			t.Errorf("%q became %+v, %q", text, k, k.String())
		}
	})
}
