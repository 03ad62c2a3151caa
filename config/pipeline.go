package config

import (
	"cmp"
	"strings"
	"time"
)

// Pipeline loads a source into the tables of a destination.
type Pipeline struct {
	Header `yaml:",inline"`
	// What is loaded where, and how.
	Spec PipelineSpec `yaml:"spec" rule:"required"`
}

// PipelineSpec is the spec of a Pipeline.
type PipelineSpec struct {
	// Names the leases and the fan-out consumer. Two pipelines never share it.
	Application string `yaml:"application" is:"name" derived:"metadata.name"`
	// Where records come from.
	Source SourceRef `yaml:"source" rule:"required"`
	// Where rows go.
	Destination DestinationRef `yaml:"destination" rule:"required"`
	// Whether to keep reading, or to read to the tip at set times.
	Mode string `yaml:"mode" enum:"continuous scheduled" default:"continuous"`
	// When a scheduled pipeline starts, as five cron fields in UTC. A start is
	// skipped while the one before it still runs.
	Schedule string `yaml:"schedule" is:"cron" derived:"none; required when mode is scheduled"`
	// What is asked of delivery.
	Delivery Delivery `yaml:"delivery"`
	// How a row tells its record: as _kinesis_ columns, as one object
	// kinesisMetadata, or not at all.
	RecordMetadata string `yaml:"recordMetadata" enum:"columns object none" default:"columns"`
	// What becomes of a record that can't be decoded: it goes to the dead-letter
	// table, or its shard halts with an incident.
	Undecodable string `yaml:"undecodable" enum:"dead_letter fail" default:"dead_letter"`
	// When rows are committed: at the first limit reached.
	Batch Batch `yaml:"batch"`
	// What records between fetch and commit, their decoding, and an embedded
	// destination's buffers take together.
	Memory Size `yaml:"memory" default:"256MiB" min:"1MiB"`
	// Region and identity for the services beside the stream: DynamoDB and CloudWatch,
	// where leases.aws and metrics.cloudwatch.aws do not say otherwise.
	AWS Service `yaml:"aws"`
	// Where leases are kept.
	Leases Leases `yaml:"leases"`
	// Names this process among the workers of the application. A part that is
	// random per process is always appended.
	WorkerID string `yaml:"workerId" is:"name" derived:"host, process id and a random part"`
	// Where metrics are sent, beside the metrics endpoint.
	Metrics Metrics `yaml:"metrics"`
}

// SourceRef names the source of a pipeline.
type SourceRef struct {
	// metadata.name of a Source.
	Name string `yaml:"name" is:"name" rule:"required"`
	// Which of the source's streams to load, as names or ARNs.
	Streams []string `yaml:"streams" is:"stream" derived:"all streams of the source"`
}

// DestinationRef names the destination of a pipeline and its tables there.
type DestinationRef struct {
	// metadata.name of a Destination.
	Name string `yaml:"name" is:"name" rule:"required"`
	// The schema, database or prefix that holds the tables.
	Namespace string `yaml:"namespace" derived:"main in DuckDB, public in PostgreSQL, PUBLIC in Snowflake, default in Iceberg, else none"`
	// The table; {stream} stands for the stream's name.
	Table string `yaml:"table" is:"table" default:"{stream}"`
	// What becomes of a value whose kind is not its column's: its record is a dead
	// letter, or the column becomes JSON. Numbers always widen.
	TypeChanges string `yaml:"typeChanges" enum:"refuse allow" default:"refuse"`
}

// Delivery is what a pipeline asks of delivery.
type Delivery struct {
	// The least guarantee that is acceptable. A destination that can't keep it is refused.
	Require string `yaml:"require" enum:"exactly_once at_least_once" default:"exactly_once"`
}

// Batch says when rows are committed.
type Batch struct {
	// Rows of one shard.
	Rows int `yaml:"rows" default:"100000"`
	// Bytes of one shard's records.
	Bytes Size `yaml:"bytes" default:"64MiB" max:"256MiB"`
	// Time since the first row.
	Age time.Duration `yaml:"age" default:"5s"`
}

// Leases says where leases are kept, and how workers share them.
type Leases struct {
	// A file on this machine, or a DynamoDB table in KCL's format that a fleet shares.
	Store string `yaml:"store" enum:"sqlite dynamodb" default:"sqlite"`
	// The file of the store sqlite.
	Path string `yaml:"path" derived:".kinetl/APPLICATION.db with store sqlite"`
	// The table of the store dynamodb.
	Table string `yaml:"table" is:"leaseTable" derived:"the application, with store dynamodb"`
	// How long a lease may go without renewal before another worker takes it.
	Failover time.Duration `yaml:"failover" default:"10s" min:"1s"`
	// The most leases that one worker holds.
	MaxPerWorker int `yaml:"maxPerWorker" derived:"no limit"`
	// Region and identity of the store dynamodb.
	AWS Service `yaml:"aws"`
}

// Metrics says where metrics are sent.
type Metrics struct {
	// Send metrics to CloudWatch under KCL's names; left out: don't.
	CloudWatch *CloudWatch `yaml:"cloudwatch"`
}

// CloudWatch says how CloudWatch is reached.
type CloudWatch struct {
	// Region and identity for CloudWatch.
	AWS Service `yaml:"aws"`
}

// Service is the region and identity for one AWS service.
type Service struct {
	// The AWS region.
	Region string `yaml:"region" is:"region" derived:"the AWS configuration's"`
	// The service's URL, for an emulator or a VPC endpoint.
	Endpoint string `yaml:"endpoint" is:"url" derived:"the region's"`
	// The profile of the shared AWS files from which credentials and region come.
	Profile string `yaml:"profile" derived:"the AWS configuration's"`
	// An access key, with secretAccessKey. Both win over role.
	AccessKeyID Secret `yaml:"accessKeyId" derived:"role, else the profile's or the process's own credentials"`
	// The access key's secret.
	SecretAccessKey Secret `yaml:"secretAccessKey"`
	// A role to assume, as its ARN or as an object; left out: the process's own identity.
	Role Role `yaml:"role"`
}

// over is s where it says something, else base. Who a caller is comes from one of
// them alone: a role of the one is never assumed with a key of the other.
func (s Service) over(base Service) Service {
	out := s
	out.Region = cmp.Or(s.Region, base.Region)
	if s.Profile == "" && s.AccessKeyID.IsZero() && s.Role == (Role{}) {
		out.Profile, out.AccessKeyID, out.SecretAccessKey, out.Role = base.Profile, base.AccessKeyID, base.SecretAccessKey, base.Role
	}
	return out
}

// TableFor is the table that a stream, given by name or ARN, feeds.
func (p *Pipeline) TableFor(stream string) string {
	return strings.ReplaceAll(p.Spec.Destination.Table, "{stream}", StreamName(stream))
}

// NextRun is the first start of a scheduled pipeline after t. The zero time: it is
// not scheduled.
func (p *Pipeline) NextRun(t time.Time) time.Time {
	schedule, err := parseCron(p.Spec.Schedule)
	if err != nil {
		return time.Time{}
	}
	return schedule.Next(t.UTC())
}
