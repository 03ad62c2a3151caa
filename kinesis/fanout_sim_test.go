package kinesis

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// Whatever goes wrong with subscriptions while records are written and shards split
// and merge: every record is read once, in the order of its shard, and a shard ends
// when it is finished, not before.
func TestFanOutSimulation(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

// dice are thrown from many goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *dice) upTo(t time.Duration) time.Duration { return time.Duration(d.n(int(t) + 1)) }

type simulation struct {
	*testing.T
	dice   *dice
	srv    *kinesistest.Server
	source *Source
	end    time.Time // of writing and resharding
	calm   time.Time // of what goes wrong

	mu   sync.Mutex
	read map[string][]string // by shard
}

func simulate(t *testing.T, seed uint64) {
	d := &dice{r: rand.New(rand.NewPCG(seed, 0))}
	opts := kinesistest.Options{
		StreamTransition: d.upTo(3 * time.Second), SubscriptionLife: 20*time.Second + d.upTo(5*time.Minute), NoLimits: d.n(2) == 0,
	}
	srv := kinesistest.New(opts)
	check(t, srv.CreateStream("s", 1+d.n(3)))
	s := &simulation{
		T: t, dice: d, srv: srv, read: map[string][]string{},
		source: NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}, Consumer: FanOut, ConsumerName: "app"}),
		end:    time.Now().Add(10 * time.Minute), calm: time.Now().Add(20 * time.Minute),
	}
	s.faults()
	var world, readers sync.WaitGroup
	for i := range 3 {
		world.Go(func() { s.write(i) })
	}
	world.Go(s.reshard)
	world.Go(s.deregister)
	s.follow(&readers)
	world.Wait()
	readers.Wait()
	s.compare()
}

// faults strike one call in two.
func (s *simulation) faults() {
	after := func() int { return s.dice.n(6) }
	for _, do := range []kinesistest.Action{
		kinesistest.EndStream(after()), kinesistest.EndStream(after()), kinesistest.CutStream(after()), kinesistest.CutStream(0), kinesistest.Silence(after()),
		kinesistest.FailStream(after(), "InternalFailureException", "x"), kinesistest.FailStream(after(), "ResourceInUseException", "x"),
		kinesistest.FailStream(after(), "ResourceNotFoundException", "x"), kinesistest.FailStream(after(), "KMSThrottlingException", "x"),
		kinesistest.FalseEnd(after()), kinesistest.NoChildren(), kinesistest.NoEnd(), kinesistest.LoseAnswer(), kinesistest.Delay(s.dice.upTo(40 * time.Second)),
		kinesistest.Fail(400, "LimitExceededException", "x"), kinesistest.Fail(400, "ResourceInUseException", "x"), kinesistest.Fail(500, "InternalFailure", "x"),
	} {
		s.srv.Fault(kinesistest.Fault{Op: "SubscribeToShard", Do: do, Match: func(*kinesistest.Call) bool {
			return time.Now().Before(s.calm) && s.dice.n(25) == 0
		}})
	}
	for _, op := range []string{"ListShards", "DescribeStreamConsumer", "RegisterStreamConsumer"} {
		s.srv.Fault(kinesistest.Fault{Op: op, Do: kinesistest.Fail(400, "LimitExceededException", "x"), Match: func(*kinesistest.Call) bool {
			return time.Now().Before(s.calm) && s.dice.n(10) == 0
		}})
	}
}

// write puts records, some of them aggregates, now and then none for a while.
func (s *simulation) write(writer int) {
	for n := 0; time.Now().Before(s.end); n++ {
		text := fmt.Sprint(writer, "-", n)
		data := []byte(text)
		if s.dice.n(4) == 0 {
			data = Aggregate([]AggregateRecord{{"a", []byte(text + "a")}, {"b", []byte(text + "b")}})
		}
		must2(s.srv.Put("s", fmt.Sprint(s.dice.n(1000)), data))
		if s.dice.n(200) == 0 {
			time.Sleep(s.dice.upTo(2 * time.Minute))
		}
		time.Sleep(s.dice.upTo(time.Second))
	}
}

func (s *simulation) reshard() {
	for time.Now().Before(s.end) {
		time.Sleep(s.dice.upTo(2 * time.Minute))
		ids := must(s.srv.Shards("s"))
		a, b := ids[s.dice.n(len(ids))], ids[s.dice.n(len(ids))]
		if s.dice.n(2) == 0 {
			s.srv.Split("s", a) // it may be closed
		} else {
			s.srv.Merge("s", a, b) // they may not be adjacent
		}
	}
}

// deregister deletes the consumer, as an operator might.
func (s *simulation) deregister() {
	for time.Now().Before(s.end) {
		time.Sleep(s.dice.upTo(10 * time.Minute))
		for _, arn := range must(s.srv.Consumers("s")) {
			// It may be CREATING.
			s.source.opts.Client.DeregisterStreamConsumer(s.Context(), &kinesis.DeregisterStreamConsumerInput{ConsumerARN: &arn})
		}
	}
}

// follow starts a reader for every shard that comes to be listed.
func (s *simulation) follow(readers *sync.WaitGroup) {
	began := map[string]bool{}
	for last := s.end.Add(time.Minute); time.Now().Before(last); time.Sleep(15 * time.Second) {
		listing, err := s.source.Shards(s.Context(), time.Time{})
		if err != nil {
			continue
		}
		for _, info := range listing.Shards {
			if !began[info.ID.Shard] {
				began[info.ID.Shard] = true
				readers.Go(func() { s.follower(info.ID) })
			}
		}
	}
}

// follower reads a shard to its end, or until nothing more can come, through one
// reader or several.
func (s *simulation) follower(id kinetl.ShardID) {
	resume := kinetl.Resume{After: kinetl.Oldest, Listed: time.Now()}
	for {
		r := must(s.source.Read(s.Context(), id, resume))
		done := s.session(id, r, &resume)
		check(s.T, r.Close())
		if done {
			return
		}
		time.Sleep(s.dice.upTo(10 * time.Second))
	}
}

func (s *simulation) session(id kinetl.ShardID, r kinetl.Reader, resume *kinetl.Resume) (done bool) {
	for pages := 10 + s.dice.n(500); pages > 0; pages-- {
		f, err := next(s.Context(), r)
		var expired *kinetl.ExpiredError
		var gone *kinetl.GoneError
		switch {
		case err == io.EOF:
			return true
		case errors.As(err, &expired), errors.As(err, &gone):
			s.Errorf("%s: %v", id, err)
			return true
		case err != nil:
			return false // as the engine does: again, with another reader
		}
		for _, rec := range f.Records {
			s.took(id, string(rec.Data))
			resume.After = rec.Position()
		}
		f.Release()
		if f.Lag == 0 && time.Now().After(s.calm) && s.isOpen(id) && s.count(id) >= len(s.held(id)) {
			return true
		}
		if s.dice.n(30) == 0 {
			time.Sleep(s.dice.upTo(8 * time.Minute)) // a slow table
		}
	}
	return false
}

func (s *simulation) isOpen(id kinetl.ShardID) bool {
	for _, info := range must(s.source.Shards(s.Context(), time.Time{})).Shards {
		if info.ID == id {
			return !info.Closed
		}
	}
	return false
}

func (s *simulation) took(id kinetl.ShardID, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[id.Shard] = append(s.read[id.Shard], text)
}

func (s *simulation) count(id kinetl.ShardID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.read[id.Shard])
}

// held is what the server holds of a shard, unpacked.
func (s *simulation) held(id kinetl.ShardID) (texts []string) {
	for _, rec := range must(s.srv.Records("s", id.Shard)) {
		for _, user := range unpack(nil, kinetl.Record{Data: rec.Data}) {
			texts = append(texts, string(user.Data))
		}
	}
	return texts
}

func (s *simulation) compare() {
	total := 0
	for _, info := range must(s.source.Shards(s.Context(), time.Time{})).Shards {
		want, got := s.held(info.ID), s.read[info.ID.Shard]
		total += len(want)
		for i := range max(len(want), len(got)) {
			switch {
			case i >= len(got):
				s.Fatalf("%s: read %d of %d records", info.ID, len(got), len(want))
			case i >= len(want) || got[i] != want[i]:
				s.Fatalf("%s: record %d is %s", info.ID, i, got[i])
			}
		}
	}
	if total < 1000 {
		s.Errorf("only %d records were written", total)
	}
	if n := must(s.srv.Subscriptions("s")); n != 0 {
		s.Errorf("%d subscriptions remain", n)
	}
}
