package kinesis

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// BenchmarkIdlePoll is one poll of a shard that has nothing new: what an idle shard
// costs every second. The server's side is in it.
func BenchmarkIdlePoll(b *testing.B) {
	srv, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	if err := srv.CreateStream("s", 1); err != nil {
		b.Fatal(err)
	}
	cfg, err := awsconf.Load(b.Context(), awsconf.Settings{Endpoint: srv.URL()})
	if err != nil {
		b.Fatal(err)
	}
	s := NewSource(Options{Client: kinesis.NewFromConfig(cfg), Streams: []string{"s"}, Unpaced: true})
	listing, err := s.Shards(b.Context(), time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	r, err := s.Read(b.Context(), listing.Shards[0].ID, kinetl.Resume{After: kinetl.Oldest})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		r.(*reader).nextCall = time.Time{}
		f, err := r.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		f.Release()
	}
}
