package kinetl_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// A fleet that starts for the first time, all workers at once, shares the shards within
// 10 s at the default failover time of 10 s, mostly within 4 s. One worker makes the leases and takes them;
// the others, who wanted to make them too, must not wait long to see that.
func TestStartTogether(t *testing.T) {
	var longest time.Duration
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			workers, shards := 2+int(seed%4), 5+int(seed%12)
			f := &troop{rig: newRig(t, shards), rng: rand.New(rand.NewPCG(seed, 22)), members: map[string]*soldier{}}
			for i := range workers {
				f.join(fmt.Sprint("w", i))
			}
			took := f.within("each worker has its share", time.Minute, func() bool { return f.balanced(shards) })
			longest = max(longest, took)
			f.live(time.Second)
			f.dismiss()
		})
	}
	t.Logf("at most %s", longest)
	if longest > 10*time.Second {
		t.Errorf("it took %s", longest)
	}
}
