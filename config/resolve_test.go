package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// Every type of value can come from the environment.
func TestResolveFillsEveryType(t *testing.T) {
	text := documents(
		strings.Replace(sourceWith("region: { env: REGION }, streams: [a, { env: STREAM }], readShare: { env: SHARE }, accessKeyId: { secret: ID }, secretAccessKey: { env: KEY }"),
			"kinesis,", "kinesis, aws: { role: { env: ROLE } },", 1),
		destinationWith("duckdb", "path: { env: FILE }"),
		strings.Replace(pipelineWith("batch: { rows: { env: ROWS }, bytes: { env: BYTES }, age: { env: AGE } }", "mode: { env: MODE }"),
			"source: { name: orders }", "source: { name: { env: SOURCE } }", 1))
	set := parse(t, text)
	if got := set.Pipelines(); len(got) != 0 {
		t.Errorf("got %d pipelines of an unknown source, want none", len(got))
	}
	err := set.Resolve(Secrets{LookupEnv: env("REGION", "eu-west-1", "STREAM", "b", "SHARE", "0.25", "ID", "id", "KEY", "key",
		"ROLE", "arn:aws:iam::111122223333:role/r", "FILE", "f.duckdb", "ROWS", "7", "BYTES", "1KiB", "AGE", "2s", "MODE", "continuous", "SOURCE", "orders")})
	if err != nil {
		t.Fatal(err)
	}
	plan := set.Pipelines()[0]
	k, p := plan.Source.Spec.Config, plan.Pipeline.Spec
	got := fmt.Sprint(k.Region, k.Streams, k.ReadShare, k.AccessKeyID.Reveal(), k.SecretAccessKey.Reveal(), plan.Source.Spec.AWS.Role.ARN,
		plan.Destination.Spec.Config.(*DuckDB).Path, p.Batch.Rows, p.Batch.Bytes, p.Batch.Age, p.Mode)
	want := fmt.Sprint("eu-west-1", []string{"a", "b"}, 0.25, "id", "key", "arn:aws:iam::111122223333:role/r", "f.duckdb", 7, Size(1024), 2*time.Second, "continuous")
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSecretsComeFromFilesThenTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ID": "from file\n", "TWO": "line\n\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := parse(t, sourceWith("accessKeyId: { secret: ID }, secretAccessKey: { secret: KEY }, schemaRegistryUrl: 'http://r', schemaRegistryPassword: { secret: TWO }, region: { env: ID }"))
	if err := set.Resolve(Secrets{Dir: dir, LookupEnv: env("ID", "from-env", "KEY", "from env")}); err != nil {
		t.Fatal(err)
	}
	k := set.Sources()[0].Spec.Config
	if k.AccessKeyID.Reveal() != "from file" || k.SecretAccessKey.Reveal() != "from env" || k.SchemaRegistryPassword.Reveal() != "line\n" || k.Region != "from-env" {
		t.Errorf("got %q, %q, %q, %q", k.AccessKeyID.Reveal(), k.SecretAccessKey.Reveal(), k.SchemaRegistryPassword.Reveal(), k.Region)
	}
}

func TestResolveReportsAllThatIsMissing(t *testing.T) {
	dir := t.TempDir()
	set := parse(t, documents(
		sourceWith("accessKeyId: { secret: ID }, secretAccessKey: { secret: KEY }, region: { env: REGION }, readShare: { env: SHARE }, endpoint: { env: URL }"),
		destination, pipelineWith("mode: { env: MODE }")))
	err := set.Resolve(Secrets{Dir: dir, LookupEnv: env("KEY", "", "SHARE", "2", "URL", "${X}", "MODE", "scheduled")})
	faults, _ := err.(Faults)
	want := []string{
		"test.yaml:4:52: spec.config.accessKeyId: there is no file " + filepath.Join(dir, "ID") + ", and no environment variable ID; set it",
		"spec.config.secretAccessKey, as KEY has it: is empty",
		"spec.config.region: there is no environment variable REGION; set it",
		"spec.config.readShare, as SHARE has it: 2 is above the most, 1",
		`spec.config.endpoint, as URL has it: "${X}" is not a URL`,
		"spec.schedule is missing: mode is scheduled",
	}
	if len(faults) != len(want) {
		t.Fatalf("got %v", err)
	}
	for i := range want {
		if !strings.Contains(faults[i].Error(), want[i]) {
			t.Errorf("got  %s\nwant %s", faults[i].Error(), want[i])
		}
	}
}

func TestResolveChecksReferencesThatCameFromOutside(t *testing.T) {
	set := parse(t, documents(source, destination, strings.Replace(pipeline, "source: { name: orders }", "source: { name: { env: SOURCE } }", 1)))
	err := set.Resolve(Secrets{LookupEnv: env("SOURCE", "order")})
	if err == nil || !strings.Contains(err.Error(), `there is no Source "order"; did you mean "orders"?`) {
		t.Errorf("got %v", err)
	}
}

func TestResolveCanBeRepeated(t *testing.T) {
	set := parse(t, sourceWith("region: { env: A }, endpoint: { env: B }"))
	if err := set.Resolve(Secrets{LookupEnv: env("A", "eu-west-1")}); err == nil {
		t.Fatal("a missing variable is no error")
	}
	if err := set.Resolve(Secrets{LookupEnv: env("B", "http://b")}); err != nil {
		t.Fatal(err)
	}
	if k := set.Sources()[0].Spec.Config; k.Region != "eu-west-1" || k.Endpoint != "http://b" {
		t.Errorf("got %+v", k)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	type inner struct{ hidden Secret }
	const text = "hunter22"
	s := NewSecret(text)
	config := KinesisSource{Connection: Connection{SecretAccessKey: s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&out, verb, s)
		fmt.Fprintf(&out, verb, &s)
		fmt.Fprintf(&out, verb, config)
		fmt.Fprintf(&out, verb, inner{s})
		fmt.Fprintf(&out, verb, []Secret{s})
		fmt.Fprintf(&out, verb, map[string]any{"a": s})
	}
	if err := json.NewEncoder(&out).Encode(map[string]any{"a": s, "b": &s, "c": config}); err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(asYAML)
	slog.New(slog.NewTextHandler(&out, nil)).Info("a", "secret", s, "config", config)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("a", "secret", s, "config", config)
	fmt.Fprint(&out, s, fmt.Errorf("error: %w", fmt.Errorf("%v", s)))
	if strings.Contains(out.String(), text) || strings.Contains(out.String(), fmt.Sprintf("%x", text)) {
		t.Errorf("the secret is in:\n%s", out.String())
	}
	if !strings.Contains(out.String(), hidden) {
		t.Error("nothing is hidden")
	}
	if s.Reveal() != text || s.IsZero() || !(Secret{}).IsZero() {
		t.Error("the secret is lost")
	}
}
