package config

// APIVersion is the version of the documents that this package reads.
const APIVersion = "openetl.io/v1alpha1"

// Header is what every document begins with.
type Header struct {
	// The version of the document.
	APIVersion string `yaml:"apiVersion" enum:"openetl.io/v1alpha1" rule:"required literal"`
	// What the document describes.
	Kind string `yaml:"kind" enum:"Source Destination Pipeline" rule:"required literal"`
	// Names the document.
	Metadata Metadata `yaml:"metadata" rule:"required"`
}

// Metadata names a document.
type Metadata struct {
	// The name by which other documents refer to this one; one per kind.
	Name string `yaml:"name" is:"name" rule:"required literal"`
}

// Source says where records are read.
type Source struct {
	Header `yaml:",inline"`
	// What is read, and how.
	Spec SourceSpec `yaml:"spec" rule:"required"`
}

// SourceSpec is the spec of a Source.
type SourceSpec struct {
	// The system that is read.
	Connector string `yaml:"connector" enum:"kinesis" rule:"required literal"`
	// The AWS identity for reading; left out: the process's own.
	AWS AWS `yaml:"aws"`
	// The connector's settings.
	Config KinesisSource `yaml:"config"`
}

// Destination says where rows are written.
type Destination struct {
	Header `yaml:",inline"`
	// What is written, and how.
	Spec DestinationSpec `yaml:"spec" rule:"required"`
}

// DestinationSpec is the spec of a Destination.
type DestinationSpec struct {
	// The system that is written.
	Connector string `yaml:"connector" enum:"duckdb postgres snowflake iceberg kinesis files" rule:"required literal"`
	// The AWS identity for writing; left out: the process's own.
	AWS AWS `yaml:"aws"`
	// The connector's settings.
	Config any `yaml:"config"` // *DuckDB, *Postgres, *Snowflake, *Iceberg, *KinesisDestination or *Files
}

// newConfig is an empty config of the connector; nil for an unknown one.
func newConfig(connector string) any {
	switch connector {
	case "duckdb":
		return new(DuckDB)
	case "postgres":
		return new(Postgres)
	case "snowflake":
		return new(Snowflake)
	case "iceberg":
		return new(Iceberg)
	case "kinesis":
		return new(KinesisDestination)
	case "files":
		return new(Files)
	}
	return nil
}

// AWS is the AWS identity of a source or destination.
type AWS struct {
	// A role to assume, as its ARN or as an object. Keys in the config win over it.
	Role Role `yaml:"role"`
	// The profile of the shared AWS files from which credentials and region come.
	Profile string `yaml:"profile" derived:"the AWS configuration's"`
}

// Role is an IAM role to assume. In a document it is an ARN, or an object.
type Role struct {
	// The role's ARN.
	ARN string `yaml:"arn" is:"role" rule:"required"`
	// The external id that the role's trust policy asks for.
	ExternalID string `yaml:"externalId" is:"externalId"`
}
