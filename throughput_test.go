package kinetl_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
)

// R21: the lease tells how much is read of its shard, which decides which leases move.
func TestThroughputOnTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		w := r.start(r.worker("me"))
		for n := range 600 {
			r.putText(0, fmt.Sprintf(`{"id":%d,"text":%q}`, n, strings.Repeat("x", 2000)))
			time.Sleep(100 * time.Millisecond)
		}
		r.mu.Lock()
		var bytes int64
		for _, e := range r.events {
			if e.Kind == kinetl.EventFetched {
				bytes += e.Bytes
			}
		}
		r.mu.Unlock()
		want := float64(bytes) / 1024 / 60
		if got := r.row(0).Throughput; got < want*0.9 || got > want*1.1 {
			t.Errorf("the lease says %v KiB a second, it was %v", got, want)
		}
		if got := r.row(1).Throughput; got != 0 {
			t.Errorf("the lease of an idle shard says %v KiB a second", got)
		}
		time.Sleep(time.Minute)
		if got := r.row(0).Throughput; got > want/100 {
			t.Errorf("a minute after the last record the lease says %v KiB a second", got)
		}
		w.drain(t)
	})
}
