package config

import (
	"strings"
	"testing"
)

// faultCases are documents with one fault each. Where it stands and what is said of
// it; schema: a JSON Schema can see it too, and has to.
var faultCases = []struct {
	name   string
	text   string
	want   string // part of the fault as Error has it
	schema bool
}{
	{"unknown key", sourceWith("stremas: [a]"), `unknown key "stremas" in spec.config; did you mean "streams"?`, true},
	{"unknown key in another case", sourceWith("start_position: latest"), `did you mean "startPosition"?`, true},
	{"key in the wrong place", source + "region: x\n", `unknown key "region" in the document; it belongs under spec.config`, true},
	{"unknown key like none", sourceWith("qqqqqqqqq: 1"), "known are region, endpoint", true},
	{"key given twice", sourceWith("region: a, region: b"), `key "region" is given twice in spec.config, first on line 4`, false},
	{"merge key", source + "<<: {}\n", "merge keys are not supported", false},
	{"key that is not text", source + "1: a\n", "a key of the document is not text", true},
	{"document that is a list", "- a\n", "the document must be an object", true},
	{"syntax", "a: [1\n", "not YAML", false},
	{"syntax of the second document", source + "---\na: [1\n", "6:4: not YAML", false},
	{"no kind", "apiVersion: openetl.io/v1alpha1\n", "kind is missing", true},
	{"unknown kind", strings.Replace(source, "Source", "Sourc", 1), `kind "Sourc" is not known; did you mean "Source"?`, true},
	{"another version", strings.Replace(source, "v1alpha1", "v1", 1), `apiVersion: "openetl.io/v1" is not allowed; the only one known is openetl.io/v1alpha1`, true},
	{"no version", strings.Replace(source, "apiVersion: openetl.io/v1alpha1\n", "", 1), "1:1: apiVersion is missing", true},
	{"no name", strings.Replace(source, "{ name: orders }", "{}", 1), "3:1: metadata.name is missing", true},
	{"name misspelt, said once", strings.Replace(source, "name:", "nmae:", 1), `unknown key "nmae" in metadata; did you mean "name"?`, true},
	{"name with a slash", strings.Replace(source, "name: orders", "name: a/b", 1), `metadata.name: "a/b" is not a name`, true},
	{"name from outside", strings.Replace(source, "name: orders", "name: { env: X }", 1), "metadata.name must be written out", true},
	{"no spec", strings.Split(source, "spec")[0], "spec is missing", true},
	{"unknown connector", strings.Replace(source, "kinesis", "kinsis", 1), `spec.connector: "kinsis" is not allowed; did you mean "kinesis"?`, true},
	{"unknown destination", strings.Replace(destination, "duckdb,", "ducdb,", 1), `did you mean "duckdb"?`, true},
	{"key of another connector", destinationWith("duckdb", "path: a, account: b"), `unknown key "account" in spec.config`, true},
	{"config left out", strings.Replace(destination, ", config: { path: orders.duckdb }", "", 1), "spec.config.path is missing", true},
	{"config misspelt, said once", strings.Replace(destination, "config:", "confg:", 1), `unknown key "confg" in spec; did you mean "config"?`, true},
	{"empty value", sourceWith("region: "), "spec.config.region is empty", true},
	{"empty text", sourceWith(`region: ""`), "spec.config.region is empty", true},
	{"empty list", sourceWith("streams: []"), "spec.config.streams is an empty list", true},
	{"text for a list", sourceWith("streams: orders"), "spec.config.streams must be a list, not text; write it in brackets: [orders]", true},
	{"number in a list", sourceWith("streams: [12]"), `spec.config.streams[0] must be text, not a number; write it in quotes: "12"`, true},
	{"stream twice", sourceWith("streams: [a, b, a]"), `spec.config.streams holds "a" twice`, true},
	{"identity of a stream that is not read", sourceWith("streams: [orders, returns], streamAws: [{ stream: retruns }]"), `does not name "retruns"; did you mean "returns"?`, false},
	{"identity of any stream", sourceWith("streamAws: [{ stream: returns }]"), "spec.config.streams is missing: streamAws is of streams that are named", false},
	{"identity of two streams", sourceWith("streams: ['arn:aws:kinesis:eu-west-1:111122223333:stream/a', 'arn:aws:kinesis:eu-west-1:444455556666:stream/a'], streamAws: [{ stream: a }]"), `names 2 streams "a"; write its ARN`, false},
	{"identity given twice", sourceWith("streams: [a], streamAws: [{ stream: a }, { stream: 'arn:aws:kinesis:eu-west-1:111122223333:stream/a' }]"), "is described twice", false},
	{"identity of no stream", sourceWith("streams: [a], streamAws: [{ profile: x }]"), "spec.config.streamAws[0].stream is missing", true},
	{"half a key of a stream", sourceWith("streams: [a], streamAws: [{ stream: a, accessKeyId: x }]"), "spec.config.streamAws[0].secretAccessKey is missing: accessKeyId is given", true},
	{"region of a stream against its ARN", sourceWith("streams: ['arn:aws:kinesis:eu-west-1:111122223333:stream/a'], streamAws: [{ stream: a, region: eu-west-2 }]"), "the stream is in eu-west-1, but spec.config.streamAws[0].region says eu-west-2", false},
	{"stream with a space", sourceWith("streams: ['a b']"), `spec.config.streams[0]: "a b" is not a stream's name or ARN`, true},
	{"ARN of a table", sourceWith("streams: ['arn:aws:dynamodb:eu-west-1:111122223333:table/a']"), "is not a stream's name or ARN", true},
	{"ARN with a short account", sourceWith("streams: ['arn:aws:kinesis:eu-west-1:1111:stream/a']"), "is not a stream's name or ARN", true},
	{"object for text", sourceWith("region: { a: b }"), "spec.config.region must be text, not an object", true},
	{"list for text", sourceWith("region: [a]"), "spec.config.region must be text, not a list", true},
	{"number for text", sourceWith("region: 12"), `must be text, not a number; write it in quotes: "12"`, true},
	{"text for an object", strings.Replace(source, "{ name: orders }", "orders", 1), "metadata must be an object of keys and values, not text", true},
	{"text for a number", pipelineWith(`batch: { rows: "12" }`), "spec.batch.rows must be a whole number, not text", true},
	{"fraction for a whole number", pipelineWith("batch: { rows: 1.5 }"), `spec.batch.rows must be a whole number, not a number`, true},
	{"zero", pipelineWith("batch: { rows: 0 }"), "spec.batch.rows: 0 is not above zero", true},
	{"negative", pipelineWith("batch: { rows: -1 }"), "spec.batch.rows: -1 is not above zero", true},
	{"text for true or false", destinationWith("kinesis", "createStreams: yes"), "spec.config.createStreams must be true or false, not text", true},
	{"duration without a unit", pipelineWith("batch: { age: 5 }"), "spec.batch.age must be a duration, such as 5s, not a number", true},
	{"duration of an unknown unit", pipelineWith("batch: { age: 5d }"), `spec.batch.age: "5d" is not a duration`, true},
	{"no duration", pipelineWith("batch: { age: 0s }"), "spec.batch.age: 0s is not above zero", false},
	{"duration below the least", pipelineWith("leases: { failover: 10ms }"), "spec.leases.failover: 10ms is below the least, 1s", false},
	{"size of an unknown unit", pipelineWith("memory: 64MiBs"), `spec.memory: "64MiBs" is not a size`, true},
	{"size in small letters", pipelineWith("memory: 64mib"), `spec.memory: "64mib" is not a size`, true},
	{"size beyond all", pipelineWith("memory: 99999999999GiB"), `is not a size`, false},
	{"part larger than any may be", pipelineWith("batch: { bytes: 257MiB }"), "spec.batch.bytes: 257MiB is above the most, 256MiB", false},
	{"share above one", sourceWith("readShare: 1.5"), "spec.config.readShare: 1.5 is above the most, 1", true},
	{"unknown word", pipelineWith("undecodable: fial"), `spec.undecodable: "fial" is not allowed; did you mean "fail"?`, true},
	{"unknown word like none", pipelineWith("mode: zzzz"), `known are continuous, scheduled`, true},
	{"bad pattern", sourceWith(`streamPattern: "("`), `spec.config.streamPattern: "(" is not a regular expression`, false},
	{"pattern balanced by its brackets", sourceWith(`streamPattern: "a)(b"`), "is not a regular expression", false},
	{"start misspelt", sourceWith("startPosition: earlist"), `spec.config.startPosition: "earlist" is not allowed; did you mean "earliest"?`, true},
	{"start without a zone", sourceWith("startPosition: 2026-11-30T00:00:00"), "no such date, or no time zone", false},
	{"start on no day", sourceWith("startPosition: 2026-11-31T00:00:00Z"), "no such date", false},
	{"start at a date", sourceWith("startPosition: 2026-11-30"), "or an RFC 3339 time", true},
	{"endpoint without a scheme", sourceWith("endpoint: 'localhost:4566'"), "begins with http:// or https://", true},
	{"role that is a user", strings.Replace(source, "kinesis }", "kinesis, aws: { role: 'arn:aws:iam::111122223333:user/a' } }", 1), "spec.aws.role: \"arn:aws:iam::111122223333:user/a\" is not a role's ARN", true},
	{"half a key for the leases", pipelineWith("leases: { store: dynamodb, aws: { accessKeyId: { secret: ID } } }"), "spec.leases.aws.secretAccessKey is missing: accessKeyId is given", true},
	{"consumer that is a stream", sourceWith("consumer: fan-out, consumerArns: ['arn:aws:kinesis:eu-west-1:111122223333:stream/a']"), "is not a consumer's ARN", true},
	{"role without ARN", strings.Replace(source, "kinesis }", "kinesis, aws: { role: { externalId: abc } } }", 1), "spec.aws.role.arn is missing", true},
	{"external id with a space", strings.Replace(source, "kinesis }", "kinesis, aws: { role: { arn: 'arn:aws:iam::111122223333:role/a', externalId: 'a b' } } }", 1), "is not an external id", true},
	{"key without its secret", sourceWith("accessKeyId: AKIA"), "spec.config.secretAccessKey is missing: accessKeyId is given; give both, or neither", true},
	{"secret without its key", sourceWith("secretAccessKey: { secret: X }"), "spec.config.accessKeyId is missing", true},
	{"avro without a registry", sourceWith("format: avro"), "spec.config.schemaRegistryUrl is missing: format avro needs it", true},
	{"registry user without a registry", sourceWith("schemaRegistryUsername: me"), "spec.config.schemaRegistryUrl is missing", true},
	{"stream of another region", sourceWith("region: eu-west-1, streams: ['arn:aws:kinesis:eu-central-1:111122223333:stream/a']"), "the stream is in eu-central-1, but spec.config.region says eu-west-1", false},
	{"streams of two regions", sourceWith("streams: ['arn:aws:kinesis:eu-central-1:111122223333:stream/a', 'arn:aws:kinesis:eu-west-1:111122223333:stream/b']"), "the stream is in eu-west-1, but spec.config.streams[0] says eu-central-1", false},
	{"private key written out", destinationWith("snowflake", "account: a, user: b, database: c, privateKey: topsecret"), "spec.config.privateKey must not be written out; write privateKey: { secret: NAME }", true},
	{"account that is a URL", destinationWith("snowflake", "account: 'https://a.b', user: b, database: c, privateKey: { env: X }"), "is not an account identifier", true},
	{"REST catalog without URL", destinationWith("iceberg", "catalog: rest"), "spec.config.uri is missing", true},
	{"literal ${", sourceWith(`endpoint: "https://${HOST}/"`), `spec.config.endpoint: "${" is not expanded; write { env: HOST }, or { secret: HOST } for a secret`, true},
	{"secret for what is printed", sourceWith("region: { secret: REGION }"), "spec.config.region is not kept secret, so it can't come from a secret; write { env: REGION }", true},
	{"reference by two names", sourceWith("region: { env: A, secret: B }"), "a reference has one key", true},
	{"reference out of the folder", sourceWith("accessKeyId: { secret: ../x }, secretAccessKey: { secret: B }"), `"../x" is not the name of a variable`, true},
	{"schedule without mode", pipelineWith(`schedule: "*/15 * * * *"`), "spec.schedule has no effect", true},
	{"mode without schedule", pipelineWith("mode: scheduled"), "spec.schedule is missing", true},
	{"schedule of six fields", pipelineWith("mode: scheduled", `schedule: "0 */15 * * * *"`), "is not five cron fields", true},
	{"schedule by name", pipelineWith("mode: scheduled", `schedule: "@daily"`), "is not five cron fields", true},
	{"schedule with a zone", pipelineWith("mode: scheduled", `schedule: "TZ=UTC 0 * * *"`), "is not five cron fields", false},
	{"schedule beyond the hour", pipelineWith("mode: scheduled", `schedule: "61 * * * *"`), "is not five cron fields", false},
	{"schedule that never comes", pipelineWith("mode: scheduled", `schedule: "0 0 30 2 *"`), "no such day ever comes", false},
	{"lease table of a file", pipelineWith("leases: { table: abc }"), "spec.leases.table is for the store dynamodb only", true},
	{"lease file of a table", pipelineWith("leases: { store: dynamodb, path: abc }"), "spec.leases.path is for the store sqlite only", true},
	{"table with another placeholder", strings.Replace(pipeline, "name: local", `name: local, table: "{strm}"`, 1), "is not a table name, in which {stream} is the only placeholder", true},
	{"unknown alias", sourceWith("region: *nobody"), `no anchor "nobody" in this document`, false},
	{"tag", sourceWith("region: !!binary aGk="), `the tag "!!binary" is not supported`, false},
}

func TestEachFaultIsSaidOnce(t *testing.T) {
	validate := validator(t)
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			text := c.text
			if strings.Contains(text, "kind: Pipeline") {
				text = documents(source, destination, text)
			}
			faults := refused(t, text)
			if len(faults) != 1 {
				t.Errorf("got %d faults, want 1:\n%v", len(faults), faults)
			}
			if got := faults[0].Error(); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if faults[0].Line == 0 || faults[0].Excerpt == "" {
				t.Errorf("the fault has no place: %+v", faults[0])
			}
			if err := validate(text); (err != nil) != c.schema && c.schema {
				t.Error("the schema accepts the document")
			}
		})
	}
}

func TestReferencesBetweenDocuments(t *testing.T) {
	second := strings.Replace(strings.Replace(pipeline, "{ name: orders }", "{ name: other }", 1), "name: local", "name: local, table: other", 1)
	cases := []struct{ name, text, want string }{
		{"unknown source", documents(source, destination, strings.Replace(pipeline, "source: { name: orders }", "source: { name: oders }", 1)),
			`spec.source.name: there is no Source "oders"; did you mean "orders"?`},
		{"unknown destination", documents(source, destination, strings.Replace(pipeline, "{ name: local }", "{ name: locale }", 1)),
			`spec.destination.name: there is no Destination "locale"; did you mean "local"?`},
		{"no destination at all", documents(source, pipeline), "give the file that describes it as well"},
		{"same name twice", documents(source, destination, pipeline, source), `Source "orders" is described twice, first in test.yaml:3`},
		{"same application", documents(source, destination, pipeline, second+"  application: orders\n"),
			`the application "orders" is that of Pipeline "orders" (test.yaml:14) too`},
		{"same lease file", documents(source, destination, pipeline, second+"  leases: { path: ./.kinetl/orders.db }\n"),
			`the lease file ".kinetl/orders.db" is that of Pipeline "orders"`},
		{"same lease table", documents(source, destination, pipeline+"  leases: { store: dynamodb, table: abc }\n", second+"  leases: { store: dynamodb, table: abc }\n"),
			`the lease table "abc" is that of Pipeline "orders"`},
		{"exactly once into a stream", documents(source, strings.Replace(destinationWith("kinesis", "shards: 1"), "path: orders.duckdb", "", 1), pipeline),
			"delivery exactly_once can't be kept by a destination of connector kinesis, which repeats rows after a failure; write delivery: { require: at_least_once }"},
		{"exactly once into files", documents(source, destinationWith("files", "path: out"), pipeline), "can't be kept by a destination of connector files"},
		{"stream that the source lacks", documents(sourceWith("streams: [clicks, views]"), destination, strings.Replace(pipeline, "{ name: orders }\n  dest", "{ name: orders, streams: [click] }\n  dest", 1)),
			`Source "orders" does not read a stream "click"; did you mean "clicks"?`},
		{"stream that the pattern leaves out", documents(sourceWith("streamPattern: a.*"), destination, strings.Replace(pipeline, "{ name: orders }\n  dest", "{ name: orders, streams: [ba] }\n  dest", 1)),
			`the streamPattern of Source "orders" leaves "ba" out`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			faults := refused(t, c.text)
			if len(faults) != 1 || !strings.Contains(faults[0].Error(), c.want) {
				t.Errorf("got  %v\nwant %s", faults, c.want)
			}
		})
	}
}

// What may be missing because its file is broken is not reported as missing.
func TestBrokenFileMakesNoMissingDocuments(t *testing.T) {
	_, err := Parse(File{"a.yaml", "a: [1\n"}, File{"b.yaml", pipeline})
	if faults, ok := err.(Faults); !ok || len(faults) != 1 || faults[0].File != "a.yaml" {
		t.Errorf("got %v", err)
	}
}

func TestExcerptsHideLiteralSecrets(t *testing.T) {
	faults := refused(t, sourceWith("accessKeyId: AKIAEXAMPLE, secretAccesKey: hunter22, dbPassword: swordfish, regoin: x"))
	text := faults.Error()
	for _, secret := range []string{"AKIAEXAMPLE", "hunter22", "swordfish"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is shown:\n%s", secret, text)
		}
	}
	if !strings.Contains(text, "accessKeyId: ***") {
		t.Errorf("the line is not shown:\n%s", text)
	}
}

func TestExcerptsSteerNoTerminal(t *testing.T) {
	faults := refused(t, sourceWith("region: \"\x1b[31mred\""))
	if strings.Contains(faults.Error(), "\x1b") {
		t.Errorf("got %q", faults.Error())
	}
}
