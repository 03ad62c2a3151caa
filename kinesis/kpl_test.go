package kinesis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/kinesistest/npmserver"
)

// aggregator packs groups of records with AWS's own library for Node.js, unpacks each
// result, and unpacks what this package has packed. []byte is base64 in JSON.
const aggregator = `
const agg = require(process.argv[1])
const { groups, packed } = JSON.parse(require('fs').readFileSync(0))
const aggregates = groups.map(g => {
  const a = new agg.RecordAggregator()
  for (const r of g) a.addUserRecord({ partitionKey: r.Key, explicitHashKey: r.Hash || undefined, data: Buffer.from(r.Data || '', 'base64') })
  return a.build().data.toString('base64')
})
const unpacked = packed.map(data => {
  let out
  agg.deaggregateSync({ data, sequenceNumber: '7' }, true, (err, records) => { if (err) throw err; out = records })
  return out.map(r => ({ Key: r.partitionKey, Data: r.data, Sub: r.subSequenceNumber }))
})
process.stdout.write(JSON.stringify({ aggregates, unpacked }))
`

type userRecord struct {
	Key, Hash string
	Data      []byte
	Sub       uint64
}

// What AWS's aggregation library for Node.js packs is unpacked to what went in, and it
// unpacks what Aggregate packs.
func TestAggregatesOfAWSLibrary(t *testing.T) {
	folder := npmserver.Package(t, "aws-kinesis-agg", "4.2.8")
	rng := rand.New(rand.NewPCG(1, 2))
	var in struct {
		Groups [][]userRecord `json:"groups"`
		Packed [][]byte       `json:"packed"`
	}
	for size := range 60 {
		var group []userRecord
		var own []AggregateRecord
		for range size + 1 {
			// The library mixes up keys that are whole numbers: it keeps them in an
			// object of JavaScript, which sorts those.
			r := userRecord{Key: fmt.Sprintf("key \u00e9 %d", rng.IntN(size+1)), Data: make([]byte, rng.IntN(300))}
			for i := range r.Data {
				r.Data[i] = byte(rng.Uint32())
			}
			if rng.IntN(3) == 0 {
				r.Hash = fmt.Sprintf("3402823669209384634633746074317%08d", rng.IntN(100))
			}
			group = append(group, r)
			own = append(own, AggregateRecord{r.Key, r.Data})
		}
		in.Groups, in.Packed = append(in.Groups, group), append(in.Packed, Aggregate(own))
	}
	stdin, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-e", aggregator, folder)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, &stderr)
	}
	var out struct {
		Aggregates [][]byte       `json:"aggregates"`
		Unpacked   [][]userRecord `json:"unpacked"`
	}
	if err := json.Unmarshal(stdout, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Aggregates) != len(in.Groups) || len(out.Unpacked) != len(in.Groups) {
		t.Fatalf("%d aggregates and %d unpacked, want %d", len(out.Aggregates), len(out.Unpacked), len(in.Groups))
	}
	for i, group := range in.Groups {
		ours := unpack(nil, kinetl.Record{Sequence: "7", PartitionKey: "outer", Data: out.Aggregates[i]})
		theirs := out.Unpacked[i]
		if len(ours) != len(group) || len(theirs) != len(group) {
			t.Fatalf("group %d: %d records, and %d by the library, want %d", i, len(ours), len(theirs), len(group))
		}
		for j, want := range group {
			if r := ours[j]; r.Sequence != "7" || r.Sub != uint64(j) || r.PartitionKey != want.Key || !bytes.Equal(r.Data, want.Data) {
				t.Errorf("group %d: record %d is %+v, want %+v", i, j, r, want)
			}
			if r := theirs[j]; r.Sub != uint64(j) || r.Key != want.Key || !bytes.Equal(r.Data, want.Data) {
				t.Errorf("group %d: by the library record %d is %+v, want %+v", i, j, r, want)
			}
		}
	}
}
