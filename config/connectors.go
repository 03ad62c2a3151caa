package config

import "time"

// Connection is how a Kinesis connector reaches the service.
type Connection struct {
	// The streams' AWS region.
	Region string `yaml:"region" is:"region" derived:"the AWS configuration's"`
	// The service's URL, for an emulator or a VPC endpoint.
	Endpoint string `yaml:"endpoint" is:"url" derived:"the region's"`
	// An access key, with secretAccessKey. Both win over aws.role.
	AccessKeyID Secret `yaml:"accessKeyId" derived:"aws.role, else the process's own credentials"`
	// The access key's secret.
	SecretAccessKey Secret `yaml:"secretAccessKey"`
}

// Format is how records are encoded.
type Format struct {
	// How a record's data is encoded. avro and protobuf need schemaRegistryUrl.
	Format string `yaml:"format" enum:"json avro protobuf" default:"json"`
	// The schema registry's URL.
	SchemaRegistryURL string `yaml:"schemaRegistryUrl" is:"url"`
	// The user at the schema registry.
	SchemaRegistryUsername Secret `yaml:"schemaRegistryUsername"`
	// The user's password.
	SchemaRegistryPassword Secret `yaml:"schemaRegistryPassword"`
}

// KinesisSource is the config of a Source with connector kinesis.
type KinesisSource struct {
	Connection `yaml:",inline"`
	// The streams, as names or ARNs; ListStreams is then never called.
	Streams []string `yaml:"streams" is:"stream" derived:"every stream that can be listed"`
	// How single ones of streams are reached. What is left out is as the source has it;
	// profile, access key and role are taken together or not at all.
	StreamAWS []StreamService `yaml:"streamAws" derived:"none"`
	// A regular expression (RE2) that a stream's whole name must match.
	StreamPattern string `yaml:"streamPattern" is:"regexp" derived:"every name"`
	// Where a stream begins that has not been read before: its oldest record, what
	// arrives from now on, or an RFC 3339 time.
	StartPosition string `yaml:"startPosition" is:"start" default:"earliest"`
	// Whether shards are polled, sharing their throughput with other readers, or
	// read by enhanced fan-out.
	Consumer string `yaml:"consumer" enum:"shared fan-out" default:"shared"`
	// Fan-out consumers that the owner of a stream has registered, for streams of other
	// accounts; those of other streams are registered under the application's name.
	ConsumerARNs []string `yaml:"consumerArns" is:"consumer" derived:"none"`
	Format       `yaml:",inline"`
	// The share of a shard's five GetRecords calls a second that polling may use.
	ReadShare float64 `yaml:"readShare" default:"0.5" max:"1"`
	// The format in which records are asked for. auto: CBOR, or JSON where the
	// endpoint does not speak CBOR.
	Wire string `yaml:"wire" enum:"auto cbor json" default:"auto"`
}

// StreamService is the region and identity of one stream of a source. It takes the
// identity whole: a role that is given here is never assumed with a key of the source's.
type StreamService struct {
	// The stream, as streams names it.
	Stream  string `yaml:"stream" is:"stream" rule:"required"`
	Service `yaml:",inline"`
}

// StartTime is the instant of StartPosition; zero for earliest and latest.
func (k KinesisSource) StartTime() time.Time {
	t, _ := time.Parse(time.RFC3339, k.StartPosition)
	return t
}

// MatchStream reports whether StreamPattern lets a stream through, given its name.
func (k KinesisSource) MatchStream(name string) bool {
	if k.StreamPattern == "" {
		return true
	}
	pattern, err := wholeName(k.StreamPattern)
	return err == nil && pattern.MatchString(name)
}

// KinesisDestination is the config of a Destination with connector kinesis. It
// writes each table to a stream, a record per row, at least once.
type KinesisDestination struct {
	Connection `yaml:",inline"`
	// Prefixes the names of streams, as NAMESPACE.TABLE; the pipeline's wins.
	Namespace string `yaml:"namespace" is:"name" derived:"none"`
	Format    `yaml:",inline"`
	// The shards of a stream that is created.
	Shards int `yaml:"shards" derived:"none: streams are created on-demand"`
	// Whether a missing stream is created.
	CreateStreams *bool `yaml:"createStreams" default:"true"`
}

// DuckDB is the config of a Destination with connector duckdb.
type DuckDB struct {
	// The database file.
	Path string `yaml:"path" rule:"required"`
	// The most memory that DuckDB may use.
	MemoryLimit Size `yaml:"memoryLimit" min:"16MiB" derived:"a share of the pipeline's memory"`
	// The threads that DuckDB may use. kinetl decodes beside them, and each table has its
	// own commits.
	Threads int `yaml:"threads" max:"1024" default:"1"`
}

// Postgres is the config of a Destination with connector postgres.
type Postgres struct {
	// The connection as a postgres:// URL or as key=value words.
	URL Secret `yaml:"url" rule:"required"`
	// The password, where it is not in url; it needs no escapes.
	Password Secret `yaml:"password" derived:"the url's, else PGPASSWORD's or the password file's"`
}

// Snowflake is the config of a Destination with connector snowflake.
type Snowflake struct {
	// The account identifier, as ORGANIZATION-ACCOUNT.
	Account string `yaml:"account" is:"account" rule:"required"`
	// The user, of TYPE = SERVICE.
	User string `yaml:"user" rule:"required"`
	// The role; it needs no more than INSERT and EVOLVE SCHEMA on the tables.
	Role string `yaml:"role" derived:"the user's default role"`
	// The user's private key in PEM; only as a reference.
	PrivateKey Secret `yaml:"privateKey" rule:"required secret"`
	// The database that holds the namespace.
	Database string `yaml:"database" rule:"required"`
	// A warehouse, used only to read error tables.
	Warehouse string `yaml:"warehouse" derived:"none"`
}

// Iceberg is the config of a Destination with connector iceberg.
type Iceberg struct {
	// The catalog's kind.
	Catalog string `yaml:"catalog" enum:"rest glue" rule:"required"`
	// The URL of a REST catalog.
	URI string `yaml:"uri" is:"url"`
	// The catalog's warehouse: where new tables are laid out.
	Warehouse string `yaml:"warehouse"`
	// The bearer token of a REST catalog.
	Token Secret `yaml:"token"`
}

// Files is the config of a Destination with connector files.
type Files struct {
	// The folder, or an s3:// URL.
	Path string `yaml:"path" rule:"required"`
	// How rows are encoded.
	Format string `yaml:"format" enum:"parquet json" default:"parquet"`
}
