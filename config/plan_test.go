package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
)

// Every default that the tags document is the one applied.
func TestDocumentedDefaultsAreApplied(t *testing.T) {
	var walk func(path string, v reflect.Value) int
	walk = func(path string, v reflect.Value) (checked int) {
		for _, f := range fieldsOf(v.Type()) {
			got := v.FieldByIndex(f.index)
			switch kind := kindOf(f.typ); {
			case kind == kindObject && got.Kind() != reflect.Pointer:
				checked += walk(join(path, f.name), got)
			case kind.isScalar() && f.def != "":
				want := reflect.New(f.typ).Elem()
				if err := setScalar(want, f, f.def); err != nil {
					t.Errorf("%s: the default %q is refused: %v", join(path, f.name), f.def, err)
				}
				if !reflect.DeepEqual(got.Interface(), want.Interface()) {
					t.Errorf("%s: got %v, documented is %s", join(path, f.name), got, f.def)
				}
				checked++
			case f.def != "":
				t.Errorf("%s: a default of a key that is no scalar is not applied", join(path, f.name))
			}
		}
		return checked
	}
	checked := walk("Source", reflect.ValueOf(withDefaults(new(Source))).Elem())
	checked += walk("Pipeline", reflect.ValueOf(withDefaults(new(Pipeline))).Elem())
	for _, connector := range []string{"duckdb", "postgres", "snowflake", "iceberg", "kinesis", "files"} {
		d := &Destination{Spec: DestinationSpec{Connector: connector, Config: newConfig(connector)}}
		checked += walk(connector, reflect.ValueOf(withDefaults(d).Spec.Config).Elem())
	}
	if checked < 15 {
		t.Errorf("only %d defaults were seen", checked)
	}
}

func TestDerivedDefaults(t *testing.T) {
	for connector, want := range map[string]string{"duckdb": "main", "postgres": "public", "snowflake": "PUBLIC", "iceberg": "default", "kinesis": "cdc", "files": ""} {
		config := map[string]string{"duckdb": "path: a", "postgres": "url: a", "snowflake": "account: a, user: b, database: c, privateKey: { secret: K }",
			"iceberg": "catalog: glue", "kinesis": "namespace: cdc", "files": "path: a"}[connector]
		set := parse(t, documents(source, destinationWith(connector, config), pipelineWith("delivery: { require: at_least_once }", "leases: { store: dynamodb }")))
		spec := set.Pipelines()[0].Pipeline.Spec
		if spec.Destination.Namespace != want {
			t.Errorf("%s: got namespace %q, want %q", connector, spec.Destination.Namespace, want)
		}
		if spec.Leases.Table != "orders" || spec.Leases.Path != "" {
			t.Errorf("got lease table %q and path %q", spec.Leases.Table, spec.Leases.Path)
		}
	}
	spec := parse(t, documents(source, destination, pipelineWith("application: app"))).Pipelines()[0].Pipeline.Spec
	if spec.Leases.Path != ".kinetl/app.db" {
		t.Errorf("got %q", spec.Leases.Path)
	}
}

func TestBatchLimitIsTheEngines(t *testing.T) {
	for _, f := range fieldsOf(reflect.TypeFor[Batch]()) {
		if f.name == "bytes" && f.max != Size(kinetl.MaxPartBytes).String() {
			t.Errorf("got %s, the engine's is %s", f.max, Size(kinetl.MaxPartBytes))
		}
	}
}

// A plan is the caller's own: changing it changes nothing in the set.
func TestPlansAreCopies(t *testing.T) {
	set := parse(t, documents(sourceWith("streams: [a]"), destination, pipelineWith("metrics: { cloudwatch: {} }")))
	first := set.Pipelines()[0]
	first.Source.Spec.Config.Streams[0] = "changed"
	first.Destination.Spec.Config.(*DuckDB).Path = "changed"
	first.Pipeline.Spec.Metrics.CloudWatch.AWS.Region = "changed"
	if text := fmt.Sprintf("%+v", set.Pipelines()[0].Source.Spec) + set.Pipelines()[0].Destination.Spec.Config.(*DuckDB).Path +
		set.Pipelines()[0].Pipeline.Spec.Metrics.CloudWatch.AWS.Region; strings.Contains(text, "changed") {
		t.Error("the set has changed")
	}
}

func TestUnsupported(t *testing.T) {
	set, err := Load(examples[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := set.NotYet(); got != nil {
		t.Errorf("%s: got %v, want nothing", examples[0], got)
	}
	if set, err = Load(examples[1]); err != nil {
		t.Fatal(err)
	}
	want := []string{"connector snowflake", "metrics in CloudWatch"}
	got := set.NotYet()
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if !strings.Contains(got[i].Message, want[i]) || got[i].Line == 0 {
			t.Errorf("got %v, want %s", got[i], want[i])
		}
	}
	set = parse(t, documents(sourceWith("format: avro, schemaRegistryUrl: 'http://r'"), destination, pipeline))
	if got := set.NotYet(); len(got) != 1 || !strings.Contains(got[0].Message, "format avro") {
		t.Errorf("got %v", got)
	}
}

func TestPipelineHelpers(t *testing.T) {
	p := parse(t, documents(source, destination, strings.Replace(pipelineWith("mode: scheduled", `schedule: "*/15 * * * *"`), "name: local", `name: local, table: "raw_{stream}"`, 1))).Pipelines()[0].Pipeline
	if got := p.TableFor("arn:aws:kinesis:eu-west-1:111122223333:stream/a.b"); got != "raw_a.b" {
		t.Errorf("got table %q", got)
	}
	at := time.Date(2026, 1, 1, 1, 14, 59, 0, time.FixedZone("", 3600+1800)) // 23:44:59 UTC
	if got, want := p.NextRun(at), time.Date(2025, 12, 31, 23, 45, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("got next run %v, want %v", got, want)
	}
	if got := (&Pipeline{}).NextRun(at); !got.IsZero() {
		t.Errorf("got next run %v of a continuous pipeline", got)
	}
	k := KinesisSource{StreamPattern: "a|b", StartPosition: "2026-11-30T01:00:00+01:00"}
	for name, want := range map[string]bool{"a": true, "b": true, "ab": false, "xa": false} {
		if got := k.MatchStream(name); got != want {
			t.Errorf("MatchStream(%q): got %v", name, got)
		}
	}
	if got := k.StartTime(); !got.Equal(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("got start %v", got)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"64MiB": 64 << 20, "1KiB": 1024, "2GiB": 2 << 30, "3MB": 3e6, "1KB": 1000, "1TiB": 1 << 40, "17": 17, "17B": 17} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q): got %d, %v", text, got, err)
		}
		if back, err := ParseSize(got.String()); err != nil || back != got {
			t.Errorf("%q does not come back from %q", text, got)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "64 MiB", "8388608TiB", "9223372036854775808"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q): got %d, want an error", text, got)
		}
	}
}

// leases.aws goes before the pipeline's aws block, and an identity is taken whole: a
// role of the one is never assumed with a key of the other.
func TestLeaseService(t *testing.T) {
	const role = "arn:aws:iam::111122223333:role/state"
	for name, x := range map[string]struct {
		aws, leases string
		want        Service
	}{
		"nothing":                   {"", "", Service{}},
		"shared":                    {"{ region: eu-west-1, role: '" + role + "' }", "", Service{Region: "eu-west-1", Role: Role{ARN: role}}},
		"own region":                {"{ region: eu-west-1, profile: state }", "{ region: eu-west-2 }", Service{Region: "eu-west-2", Profile: "state"}},
		"own identity":              {"{ region: eu-west-1, role: '" + role + "' }", "{ profile: leases }", Service{Region: "eu-west-1", Profile: "leases"}},
		"an endpoint is not shared": {"{ endpoint: 'http://cloudwatch' }", "", Service{}},
	} {
		lines := []string{"leases: { store: dynamodb }"}
		if x.leases != "" {
			lines[0] = "leases: { store: dynamodb, aws: " + x.leases + " }"
		}
		if x.aws != "" {
			lines = append(lines, "aws: "+x.aws)
		}
		plan := parse(t, documents(source, destination, pipelineWith(lines...))).Pipelines()[0]
		if got := plan.LeaseService(); got != x.want {
			t.Errorf("%s: got %+v, want %+v", name, got, x.want)
		}
	}
}

// A stream may be reached in a way of its own. What is left out is the source's, and an
// identity is taken whole.
func TestStreamGroups(t *testing.T) {
	const base = "region: eu-west-1, endpoint: 'http://own', accessKeyId: { env: ID }, secretAccessKey: { env: KEY }, streams: [a, 'arn:aws:kinesis:eu-west-1:111122223333:stream/b', c, d], "
	plan := func(streamAWS, only string) Plan {
		pipe := pipeline
		if only != "" {
			pipe = strings.Replace(pipeline, "source: { name: orders", "source: { name: orders, streams: ["+only+"]", 1)
		}
		set := parse(t, documents(sourceWith(base+streamAWS), destination, pipe))
		if err := set.Resolve(Secrets{LookupEnv: func(name string) (string, bool) { return "own " + name, true }}); err != nil {
			t.Fatal(err)
		}
		return set.Pipelines()[0]
	}
	const role = "arn:aws:iam::444455556666:role/reader"
	groups := plan("streamAws: [{ stream: b, role: '"+role+"' }, { stream: c, region: eu-west-2 }, { stream: d, role: '"+role+"' }]", "").StreamGroups()
	if len(groups) != 3 {
		t.Fatalf("got %+v", groups)
	}
	own := groups[0].Service
	if own.Region != "eu-west-1" || own.Endpoint != "http://own" || own.AccessKeyID.Reveal() != "own ID" || own.SecretAccessKey.Reveal() != "own KEY" {
		t.Errorf("the source's own: %+v", own)
	}
	if want := (Service{Region: "eu-west-1", Endpoint: "http://own", Role: Role{ARN: role}}); groups[1].Service != want {
		t.Errorf("a role: got %+v, want %+v", groups[1].Service, want)
	}
	elsewhere := own
	elsewhere.Region, elsewhere.Endpoint = "eu-west-2", "" // the endpoint is of eu-west-1
	if groups[2].Service != elsewhere {
		t.Errorf("a region: got %+v, want %+v", groups[2].Service, elsewhere)
	}
	for i, want := range []string{"a", "arn:aws:kinesis:eu-west-1:111122223333:stream/b d", "c"} {
		if got := strings.Join(groups[i].Streams, " "); got != want {
			t.Errorf("group %d: got %s, want %s", i, got, want)
		}
	}
	// A pipeline that reads one of them only, and that one by its own way.
	groups = plan("streamAws: [{ stream: b, role: '"+role+"' }]", "b").StreamGroups()
	if len(groups) != 1 || groups[0].Service.Role.ARN != role || len(groups[0].Streams) != 1 {
		t.Errorf("got %+v", groups)
	}
	// Without any, one way for all that can be listed.
	groups = parse(t, documents(source, destination, pipeline)).Pipelines()[0].StreamGroups()
	if len(groups) != 1 || groups[0].Streams != nil {
		t.Errorf("got %+v", groups)
	}
}
