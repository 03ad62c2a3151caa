package main

import (
	"context"
	"math/big"
	"sort"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// openShards is the stream's open shards, in the order of their hash keys.
func (d *demo) openShards(ctx context.Context) ([]types.Shard, error) {
	answer, err := d.client.ListShards(ctx, &awskinesis.ListShardsInput{
		StreamName: aws.String(demoStream), ShardFilter: &types.ShardFilter{Type: types.ShardFilterTypeAtLatest},
	})
	if err != nil {
		return nil, err
	}
	shards := answer.Shards
	sortByHashKey(shards)
	return shards, nil
}

func (d *demo) split(ctx context.Context) error {
	open, err := d.openShards(ctx)
	if err != nil {
		return err
	}
	_, err = d.client.SplitShard(ctx, &awskinesis.SplitShardInput{
		StreamName: aws.String(demoStream), ShardToSplit: open[0].ShardId, NewStartingHashKey: aws.String(middle(open[0].HashKeyRange)),
	})
	return err
}

func (d *demo) merge(ctx context.Context) error {
	open, err := d.openShards(ctx)
	if err != nil {
		return err
	}
	_, err = d.client.MergeShards(ctx, &awskinesis.MergeShardsInput{
		StreamName: aws.String(demoStream), ShardToMerge: open[0].ShardId, AdjacentShardToMerge: open[1].ShardId,
	})
	return err
}

func number(decimal *string) *big.Int {
	n, _ := new(big.Int).SetString(aws.ToString(decimal), 10)
	return n
}

func sortByHashKey(shards []types.Shard) {
	sort.Slice(shards, func(i, j int) bool {
		return number(shards[i].HashKeyRange.StartingHashKey).Cmp(number(shards[j].HashKeyRange.StartingHashKey)) < 0
	})
}

// middle is where to split a range of hash keys in two.
func middle(r *types.HashKeyRange) string {
	sum := new(big.Int).Add(number(r.StartingHashKey), number(r.EndingHashKey))
	return sum.Rsh(sum, 1).String()
}
