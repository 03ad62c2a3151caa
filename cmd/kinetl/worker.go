package main

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"os"
	"sort"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// workerID names this process: host, pid, and something random, because a host and
// a pid come back (R21).
func workerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
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
