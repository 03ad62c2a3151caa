// Package importer brings positions that another system keeps in a DynamoDB table
// over to leases. It reads that table and writes nothing to it.
//
// Read gives the table's rows, Map the leases that stand for the same positions, or
// what is wrong with the rows, and Write creates those leases that are not there yet.
// docs/import.md tells how it is used.
package importer

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
)

type item = map[string]types.AttributeValue

// Layout is how a system lays out its table.
type Layout struct {
	Name string // what the system is called

	// key is the table's key schema, such as "hash streamName S, range shardId S".
	key  string
	read func(item) (Row, error)
	// deletesEnded: the row of a shard that was read to its end is deleted.
	deletesEnded bool
	// migration is the ending of the table that stands beside a table whose rows are
	// still being written by the system's own migration; empty: it has none.
	migration string
}

// Layouts are the layouts by the name that a user gives.
func Layouts() map[string]Layout {
	return map[string]Layout{
		"openflow":         {Name: "Openflow or NiFi", key: "hash streamName S, range shardId S", read: openflow, migration: "_migration"},
		"bento":            {Name: "Bento", key: "hash StreamID S, range ShardID S", read: benthos, deletesEnded: true},
		"redpanda-connect": {Name: "Redpanda Connect", key: "hash StreamID S, range ShardID S", read: benthos, deletesEnded: true},
		"vmware-go-kcl":    {Name: "vmware-go-kcl", key: "hash ShardID S", read: vmware},
	}
}

// Row is what an item of the other system's table says.
type Row struct {
	Stream string // name or ARN; empty where the table does not say
	Shard  string // empty: the item is no shard's, and tells of a node only

	// Checkpoint is a decimal sequence number or one of KCL's words; empty: the shard
	// was seen, and nothing of it was read.
	Checkpoint string
	Sub        uint64 // Through which record of an aggregate; see Whole

	Node  string    // who holds the shard, or whose sign of life it is
	Wrote time.Time // when a system wrote the item last, as far as it shows
}

// Whole is the sub-sequence number behind the last record of any aggregate: systems
// that keep sequence numbers alone have dealt with all of the record. It is the
// largest that KCL can read, too.
const Whole uint64 = math.MaxInt64

// String names the row in messages.
func (r Row) String() string {
	switch {
	case r.Shard == "" && r.Node == "":
		return strings.TrimSpace(r.Stream + " without a shard")
	case r.Shard == "":
		return "node " + r.Node
	case r.Stream == "":
		return r.Shard
	}
	return r.Stream + " " + r.Shard
}

// quiet is how long a node must not have written before it counts as stopped: twice
// the lease of Openflow and of Bento, six times that of vmware-go-kcl.
const quiet = time.Minute

// Alive names the nodes of the other system that have written within the last minute
// and not given back what they hold.
func Alive(rows []Row, now time.Time) (nodes []string) {
	last := map[string]time.Time{}
	for _, r := range rows {
		if r.Node == "" || now.Sub(r.Wrote) >= quiet {
			continue
		}
		if _, seen := last[r.Node]; !seen {
			nodes = append(nodes, r.Node)
		}
		if r.Wrote.After(last[r.Node]) {
			last[r.Node] = r.Wrote
		}
	}
	for i, n := range nodes {
		nodes[i] = fmt.Sprintf("%s (%s)", n, last[n].UTC().Format(time.RFC3339))
	}
	return nodes
}

// Shard is a listed shard, in the lease package's words and with what tells whether a
// position can be of it.
type Shard struct {
	lease.Shard
	ARN         string // of its stream
	Closed      bool
	First, Last string // starting and, when Closed, ending sequence number
}

// Listing is the shards that a service listed, and its clock when it did.
type Listing struct {
	At     time.Time
	Shards []Shard
}
