package kinetl

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Pipeline loads a source into the tables of a destination: a Consumer whose
// function decodes and commits.
type Pipeline struct {
	Consumer    Consumer
	NewDecoder  func() Decoder // one per shard and session
	Destination Destination
	Config      PipelineConfig
}

// PipelineConfig configures a Pipeline. Zero fields take the defaults named.
type PipelineConfig struct {
	Table           func(ShardID) string // the table that a shard feeds (R4); default: the stream's name
	Batch           Batch
	RowGroup        int           // rows that the destination stores as one unit: a commit of more has a multiple of them, and what is over goes with the next; default: no such unit
	Memory          int64         // bytes of records between fetch and commit; default 128 MiB
	TypeChanges     TypeChanges   // default Refuse
	Metadata        MetadataMode  // default MetadataColumns
	FailUndecodable bool          // a record that can't be decoded halts its shard; default: it becomes a dead letter
	Drain           time.Duration // how long a stop may take to commit what was read; default 30 s
	Until           time.Time     // records that arrived then or later are left in the stream; default none
}

// Batch says when a part is sealed: at the first limit reached.
type Batch struct {
	Rows  int           // default 100,000
	Bytes int64         // default 64 MiB, at most MaxPartBytes
	Age   time.Duration // since its first row; default 5 s
}

func (c PipelineConfig) withDefaults() PipelineConfig {
	if c.Table == nil {
		c.Table = ShardID.StreamName
	}
	if c.Batch.Rows == 0 {
		c.Batch.Rows = 100_000
	}
	if c.Batch.Bytes == 0 {
		c.Batch.Bytes = 64 << 20
	}
	c.Batch.Bytes = min(c.Batch.Bytes, MaxPartBytes)
	if c.Batch.Age == 0 {
		c.Batch.Age = 5 * time.Second
	}
	if c.Memory == 0 {
		c.Memory = 128 << 20
	}
	if c.Drain == 0 {
		c.Drain = 30 * time.Second
	}
	return c
}

// Run reads, decodes and commits until ctx ends, or with Consumer.Config.Once until
// everything is read. It then stops reading, commits what was read within
// Config.Drain, writes checkpoints and releases its leases. Whatever it does not
// get to is read again by the next run; a kill at any point loses and repeats nothing.
func (p *Pipeline) Run(ctx context.Context) error {
	config := p.Config.withDefaults()
	run := &pipeline{
		Source: p.Consumer.Source, Destination: p.Destination, NewDecoder: p.NewDecoder,
		Config: config, Once: p.Consumer.Config.Once,
		budget: newBudget(config.Memory), observe: observer(p.Consumer.Config.Observe),
		tables: map[string]*table{}, told: map[string]ShardID{},
	}
	// Commits outlive ctx: shards that drain wait for them.
	commits, stop := context.WithCancel(context.WithoutCancel(ctx))
	run.start = func(t *table) { run.wg.Go(func() { t.run(commits) }) }
	defer run.wg.Wait()
	defer stop()
	consumer := p.Consumer
	consumer.until = config.Until
	consumer.tell = func(s *Shard, inc Incident) { run.tell(inc.ID, s.Info.ID) }
	return consumer.Run(ctx, run.load)
}

// pipeline is the state of one Run.
type pipeline struct {
	Source      Source
	Destination Destination
	NewDecoder  func() Decoder
	Config      PipelineConfig
	Once        bool
	budget      *budget
	observe     observer
	start       func(*table) // its committer
	wg          sync.WaitGroup

	mu     sync.Mutex
	tables map[string]*table
	told   map[string]ShardID // incidents that do not halt -> the shard whose lease has it
}

// table is the shard's table; the first shard of a table starts its committer.
func (p *pipeline) table(shard ShardID) *table {
	name := p.Config.Table(shard)
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.tables[name]
	if !ok {
		t = newTable(name, p)
		p.tables[name] = t
		p.start(t)
	}
	return t
}

// tell reports whether an incident is new to this run, and notes it.
func (p *pipeline) tell(id string, shard ShardID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.told[id]; known {
		return false
	}
	p.told[id] = shard
	return true
}

// forget lets notices on the lease of a shard that this worker lost be opened anew:
// they may not have been written, or a person has resolved them.
func (p *pipeline) forget(shard ShardID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, on := range p.told {
		if on == shard {
			delete(p.told, id)
		}
	}
}

// jitter is a random duration below d.
func jitter(d time.Duration) time.Duration { return rand.N(d) }
