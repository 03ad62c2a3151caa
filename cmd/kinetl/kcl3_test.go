package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// R22: where a KCL 3 fleet assigns the leases, the run ends with exit code 3: the leases
// are in other hands, as a file that another process holds. Scripts can tell it from a
// failure.
func TestBesideKCL3(t *testing.T) {
	m := newMigration(t, "bento")
	m.makeTable("kcl", "leaseKey")
	documents := m.documents(m.leases("kcl"))
	ctx, stop := context.WithCancel(t.Context())
	beating := make(chan error, 1)
	beat := func(n int) error {
		table := "kcl"
		_, err := m.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: dynamoItem{
			"leaseKey": itemText("Leader"), "ownerName": itemText("kcl-worker"), "leaseDuration": itemText("120000"), "recordVersionNumber": itemText(fmt.Sprint(n)),
		}})
		return err
	}
	if err := beat(0); err != nil {
		t.Fatal(err)
	}
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				beating <- nil
				return
			case <-tick.C:
				if err := beat(n); err != nil && ctx.Err() == nil {
					beating <- err
					return
				}
			}
		}
	}()
	code, _, stderr := kinetlWith("", "run", "--once", documents)
	stop()
	if err := <-beating; err != nil {
		t.Fatal(err)
	}
	if code != exitSurroundings || !strings.Contains(stderr, "KCL 3 is at work on these leases: worker kcl-worker holds the leader lock") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
