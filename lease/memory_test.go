package lease_test

import (
	"testing"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/leasetest"
)

func TestMemory(t *testing.T) {
	shared := map[string]*lease.Memory{}
	leasetest.Run(t, leasetest.Suite{Open: func(t *testing.T, _ string) lease.Store {
		if shared[t.Name()] == nil {
			shared[t.Name()] = &lease.Memory{}
		}
		return shared[t.Name()]
	}})
}
