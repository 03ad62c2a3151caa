package kinesistest

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

func reshardBehaviours() []behaviour {
	return []behaviour{
		{"a split makes two children", all, splits},
		{"a merge makes one child", all, merges},
		{"children's sequence numbers are larger", ours | kinesalite, childrenLarger},
		{"a closed shard ends without an iterator", all, endsClosed},
		{"the end names the children", ours | kinesisLocal, endNamesChildren},
		{"a split outside the range is refused", ours | kinesalite, refusesSplit},
		{"shards that don't touch are not merged", all, refusesMerge},
		{"UpdateShardCount makes equal shards", ours | kinesisLocal, updatesCount},

		{"ListShards pages", ours | kinesisLocal, pagesShards},
		{"a token stands alone", ours, tokenAlone},
		{"filters by id, horizon and tip", ours | kinesisLocal, filtersShards},
		{"filters by time", ours, filtersShardsByTime},
	}
}

// splitHalf splits a shard in the middle.
func (w caller) splitHalf(stream string, sh types.Shard) {
	w.Helper()
	low, _ := new(big.Int).SetString(*sh.HashKeyRange.StartingHashKey, 10)
	high, _ := new(big.Int).SetString(*sh.HashKeyRange.EndingHashKey, 10)
	mid := low.Add(low, high)
	mid.Add(mid.Rsh(mid, 1), big.NewInt(1))
	_, err := w.api.SplitShard(w.ctx, &kinesis.SplitShardInput{StreamName: &stream, ShardToSplit: sh.ShardId, NewStartingHashKey: aws.String(mid.String())})
	w.must(err)
	w.active(stream)
}

func (w caller) mergePair(stream string, a, b types.Shard) {
	w.Helper()
	_, err := w.api.MergeShards(w.ctx, &kinesis.MergeShardsInput{StreamName: &stream, ShardToMerge: a.ShardId, AdjacentShardToMerge: b.ShardId})
	w.must(err)
	w.active(stream)
}

func lineage(shards []types.Shard) string {
	var all []string
	for _, s := range shards {
		state := "open"
		if s.SequenceNumberRange.EndingSequenceNumber != nil {
			state = "closed"
		}
		line := fmt.Sprintf("%s %s", ids([]types.Shard{s}), state)
		for _, p := range []*string{s.ParentShardId, s.AdjacentParentShardId} {
			if p != nil {
				line += " <" + ids([]types.Shard{{ShardId: p}})
			}
		}
		all = append(all, line)
	}
	return strings.Join(all, ", ")
}

func splits(w caller) {
	name := w.stream(1)
	parent := w.shards(name)[0]
	w.splitHalf(name, parent)
	shards := w.shards(name)
	same(w, "shards", lineage(shards), "0 closed, 1 open <0, 2 open <0")
	half := "170141183460469231731687303715884105728"
	same(w, "start of the first", *shards[1].HashKeyRange.StartingHashKey, "0")
	same(w, "end of the first", *shards[1].HashKeyRange.EndingHashKey, "170141183460469231731687303715884105727")
	same(w, "start of the second", *shards[2].HashKeyRange.StartingHashKey, half)
	same(w, "end of the second", *shards[2].HashKeyRange.EndingHashKey, *parent.HashKeyRange.EndingHashKey)
	for i, hash := range []string{"0", half} {
		out, err := w.api.PutRecord(w.ctx, &kinesis.PutRecordInput{StreamName: &name, PartitionKey: aws.String("k"), ExplicitHashKey: &hash, Data: []byte("x")})
		w.must(err)
		same(w, "shard of "+hash, *out.ShardId, *shards[i+1].ShardId)
	}
}

func merges(w caller) {
	name := w.stream(3)
	shards := w.shards(name)
	w.mergePair(name, shards[1], shards[2])
	after := w.shards(name)
	same(w, "shards", lineage(after), "0 open, 1 closed, 2 closed, 3 open <1 <2")
	same(w, "start", *after[3].HashKeyRange.StartingHashKey, *shards[1].HashKeyRange.StartingHashKey)
	same(w, "end", *after[3].HashKeyRange.EndingHashKey, *shards[2].HashKeyRange.EndingHashKey)
}

func childrenLarger(w caller) {
	name := w.stream(1)
	w.put(name, "a")
	w.splitHalf(name, w.shards(name)[0])
	shards := w.shards(name)
	w.mergePair(name, shards[1], shards[2])
	shards = w.shards(name)
	for _, pair := range [][2]int{{0, 1}, {0, 2}, {1, 3}, {2, 3}} {
		end := *shards[pair[0]].SequenceNumberRange.EndingSequenceNumber
		start := *shards[pair[1]].SequenceNumberRange.StartingSequenceNumber
		if len(end) != len(start) || start <= end {
			w.Errorf("shard %d starts at %s, its parent %d ended at %s", pair[1], start, pair[0], end)
		}
	}
	if n := w.put(name, "b")[0]; n <= *shards[3].SequenceNumberRange.StartingSequenceNumber {
		w.Errorf("%s is not after its shard's start", n)
	}
}

func endsClosed(w caller) {
	name := w.stream(1)
	n := w.put(name, "a", "b")
	w.splitHalf(name, w.shards(name)[0])
	page := w.get(w.horizon(name, shard0), 1)
	same(w, "first page", texts(page), "a")
	if page.NextShardIterator == nil {
		w.Fatal("the shard ended before its last record")
	}
	page = w.get(*page.NextShardIterator, 1)
	same(w, "second page", texts(page), "b")
	if page.NextShardIterator != nil { // some servers want one more call
		page = w.get(*page.NextShardIterator, 1)
		same(w, "page after the last record", texts(page), "")
	}
	if page.NextShardIterator != nil {
		w.Error("an iterator leads past the end")
	}
	page = w.get(w.iterator(name, shard0, types.ShardIteratorTypeAfterSequenceNumber, n[1], time.Time{}), 0)
	same(w, "after the last record", texts(page), "")
	if page.NextShardIterator != nil {
		w.Error("an iterator leads past the end")
	}
}

func endNamesChildren(w caller) {
	name := w.stream(2)
	before := w.shards(name)
	w.splitHalf(name, before[0])
	shards := w.shards(name)
	w.mergePair(name, shards[3], shards[1])
	end := func(shard string) (out []string) {
		for _, c := range w.get(w.horizon(name, shard), 0).ChildShards {
			slices.Sort(c.ParentShards)
			out = append(out, fmt.Sprintf("%s of %s, %s to %s", *c.ShardId, strings.Join(c.ParentShards, " and "), *c.HashKeyRange.StartingHashKey, *c.HashKeyRange.EndingHashKey))
		}
		return out
	}
	shards = w.shards(name)
	same(w, "children of 0", strings.Join(end(shard0), "; "),
		fmt.Sprintf("shardId-000000000002 of %s, 0 to %s; shardId-000000000003 of %s, %s to %s", shard0,
			*shards[2].HashKeyRange.EndingHashKey, shard0, *shards[3].HashKeyRange.StartingHashKey, *before[0].HashKeyRange.EndingHashKey))
	child := fmt.Sprintf("shardId-000000000004 of shardId-000000000001 and shardId-000000000003, %s to %s",
		*shards[3].HashKeyRange.StartingHashKey, *shards[1].HashKeyRange.EndingHashKey)
	same(w, "children of 3", strings.Join(end("shardId-000000000003"), "; "), child)
	same(w, "children of 1", strings.Join(end("shardId-000000000001"), "; "), child)
}

func refusesSplit(w caller) {
	name := w.stream(2)
	sh := w.shards(name)[1]
	for _, key := range []string{"0", *sh.HashKeyRange.StartingHashKey} {
		_, err := w.api.SplitShard(w.ctx, &kinesis.SplitShardInput{StreamName: &name, ShardToSplit: sh.ShardId, NewStartingHashKey: &key})
		refused(w, err, "InvalidArgumentException")
	}
}

func refusesMerge(w caller) {
	name := w.stream(3)
	sh := w.shards(name)
	_, err := w.api.MergeShards(w.ctx, &kinesis.MergeShardsInput{StreamName: &name, ShardToMerge: sh[0].ShardId, AdjacentShardToMerge: sh[2].ShardId})
	refused(w, err, "InvalidArgumentException")
}

func updatesCount(w caller) {
	name := w.stream(2)
	scale := func(n int32) error {
		_, err := w.api.UpdateShardCount(w.ctx, &kinesis.UpdateShardCountInput{StreamName: &name, TargetShardCount: &n, ScalingType: types.ScalingTypeUniformScaling})
		return err
	}
	if err := scale(5); err == nil {
		w.Error("more than double was taken")
	}
	for _, n := range []int32{4, 2} {
		w.must(scale(n))
		w.active(name)
		covered := new(big.Int)
		open := int32(0)
		for _, sh := range w.shards(name) {
			if sh.SequenceNumberRange.EndingSequenceNumber == nil {
				open++
				low, _ := new(big.Int).SetString(*sh.HashKeyRange.StartingHashKey, 10)
				high, _ := new(big.Int).SetString(*sh.HashKeyRange.EndingHashKey, 10)
				covered.Add(covered, high.Sub(high, low).Add(high, big.NewInt(1)))
			}
		}
		same(w, "open shards", open, n)
		same(w, "keys covered", covered.String(), "340282366920938463463374607431768211456")
	}
}

func pagesShards(w caller) {
	name := w.stream(5)
	in := &kinesis.ListShardsInput{StreamName: &name, MaxResults: aws.Int32(2)}
	var pages []string
	for {
		out, err := w.api.ListShards(w.ctx, in)
		w.must(err)
		pages = append(pages, ids(out.Shards))
		if out.NextToken == nil {
			break
		}
		in = &kinesis.ListShardsInput{NextToken: out.NextToken, MaxResults: aws.Int32(2)}
	}
	same(w, "pages", strings.Join(pages, "|"), "0 1|2 3|4")
	out, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: &name, ExclusiveStartShardId: aws.String("shardId-000000000002")})
	w.must(err)
	same(w, "after 2", ids(out.Shards), "3 4")
}

func tokenAlone(w caller) {
	name := w.stream(2)
	out, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: &name, MaxResults: aws.Int32(1)})
	w.must(err)
	arn := "arn:aws:kinesis:us-east-1:000000000000:stream/" + name
	for _, in := range []kinesis.ListShardsInput{
		{StreamName: &name},
		{StreamARN: &arn},
		{ExclusiveStartShardId: aws.String(shard0)},
		{ShardFilter: &types.ShardFilter{Type: types.ShardFilterTypeAtLatest}},
		{StreamCreationTimestamp: aws.Time(time.Now())},
	} {
		in.NextToken = out.NextToken
		_, err := w.api.ListShards(w.ctx, &in)
		refused(w, err, "InvalidArgumentException")
	}
	_, err = w.api.ListShards(w.ctx, &kinesis.ListShardsInput{NextToken: aws.String("AAAA")})
	refused(w, err, "InvalidArgumentException")
}

// filtered lists through a filter.
func (w caller) filtered(stream string, f types.ShardFilter) string {
	w.Helper()
	out, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: &stream, ShardFilter: &f})
	w.must(err)
	return ids(out.Shards)
}

func filtersShards(w caller) {
	name := w.stream(2)
	w.splitHalf(name, w.shards(name)[0])
	same(w, "AT_LATEST", w.filtered(name, types.ShardFilter{Type: types.ShardFilterTypeAtLatest}), "1 2 3")
	same(w, "FROM_TRIM_HORIZON", w.filtered(name, types.ShardFilter{Type: types.ShardFilterTypeFromTrimHorizon}), "0 1 2 3")
	same(w, "AFTER_SHARD_ID", w.filtered(name, types.ShardFilter{Type: types.ShardFilterTypeAfterShardId, ShardId: aws.String("shardId-000000000001")}), "2 3")
}

func filtersShardsByTime(w caller) {
	name := w.stream(1)
	before := time.Now()
	for !time.Now().After(before.Add(3 * time.Millisecond)) { // requests have milliseconds
		w.shards(name)
	}
	w.splitHalf(name, w.shards(name)[0])
	for after := time.Now(); !time.Now().After(after.Add(3 * time.Millisecond)); {
		w.shards(name)
	}
	at := func(kind types.ShardFilterType, t time.Time) string {
		return w.filtered(name, types.ShardFilter{Type: kind, Timestamp: &t})
	}
	same(w, "open before the split", at(types.ShardFilterTypeAtTimestamp, before.Add(time.Millisecond)), "0")
	same(w, "open now", at(types.ShardFilterTypeAtTimestamp, time.Now()), "1 2")
	same(w, "since before the split", at(types.ShardFilterTypeFromTimestamp, before), "0 1 2")
	same(w, "since now", at(types.ShardFilterTypeFromTimestamp, time.Now()), "1 2")
	same(w, "AT_TRIM_HORIZON", w.filtered(name, types.ShardFilter{Type: types.ShardFilterTypeAtTrimHorizon}), "0")
	_, err := w.api.ListShards(w.ctx, &kinesis.ListShardsInput{StreamName: &name, ShardFilter: &types.ShardFilter{Type: types.ShardFilterTypeAtTimestamp, Timestamp: aws.Time(time.Now().Add(time.Hour))}})
	refused(w, err, "InvalidArgumentException")
}
