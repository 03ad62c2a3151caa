package lease

import (
	"slices"
	"testing"
)

// R22: at the end of a shard its children have rows before it says SHARD_END, and
// those of a merge only beside the row of the other parent.
func TestEnding(t *testing.T) {
	shard := func(id string, parents ...string) Shard {
		return Shard{Key: "s:" + id, Group: "s:", ID: id, Parents: parents, OpenAtStart: true, StartingHashKey: "0", EndingHashKey: "9"}
	}
	listing := Listing{At: second(50), Shards: []Shard{
		shard("0"), shard("1"), shard("2"), shard("3", "0", "1"), shard("4", "2"), shard("5", "2"), shard("6", "3"),
		shard("c1"), shard("c2", "c1"), shard("c3", "c2"), shard("d"), shard("e", "c3", "d"),
		{Key: "t:9", Group: "t:", ID: "9", Parents: []string{"0"}},
	}}
	for name, tt := range map[string]struct {
		key      string
		leases   []Lease
		create   []string
		children []string
	}{
		"a split":                             {"s:2", []Lease{{Key: "s:2"}}, []string{"s:4", "s:5"}, []string{"4", "5"}},
		"one child has a row":                 {"s:2", []Lease{{Key: "s:2"}, {Key: "s:5", Parents: []string{"2"}}}, []string{"s:4"}, []string{"4", "5"}},
		"a merge":                             {"s:0", []Lease{{Key: "s:0"}, {Key: "s:1"}}, []string{"s:3"}, []string{"3"}},
		"a merge whose other parent has none": {"s:0", []Lease{{Key: "s:0"}}, []string{"s:1", "s:3"}, []string{"3"}},
		"a merge far ahead of what is read":   {"s:d", []Lease{{Key: "s:d"}, {Key: "s:c1"}}, []string{"s:c2", "s:c3", "s:e"}, []string{"e"}},
		"all rows are there":                  {"s:0", []Lease{{Key: "s:0"}, {Key: "s:1"}, {Key: "s:3", Parents: []string{"0", "1"}}}, nil, []string{"3"}},
		"the child was finished":              {"s:0", []Lease{{Key: "s:0"}, {Key: "s:6", Parents: []string{"3"}}}, nil, []string{"3"}},
		"the children have left the listing":  {"s:6", []Lease{{Key: "s:6"}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			create, children := Ending(tt.key, tt.leases, listing, Start{Checkpoint: TrimHorizon})
			var keys []string
			for _, l := range create {
				keys = append(keys, l.Key)
				if l.Checkpoint != TrimHorizon || l.StartingHashKey != "0" || l.EndingHashKey != "9" || l.Counter != 0 || l.Owner != "" {
					t.Errorf("to create: %+v", l)
				}
			}
			if !slices.Equal(keys, tt.create) || !slices.Equal(children, tt.children) {
				t.Errorf("create %v, children %v; want %v, %v", keys, children, tt.create, tt.children)
			}
		})
	}
}
