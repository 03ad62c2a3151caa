package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var examples = []string{"../examples/kinesis-duckdb.yaml", "../examples/kinesis-snowflake-cross-account.yaml"}

// The least documents of each kind; tests put keys in place of the %s.
const (
	source      = "apiVersion: openetl.io/v1alpha1\nkind: Source\nmetadata: { name: orders }\nspec: { connector: kinesis }\n"
	destination = "apiVersion: openetl.io/v1alpha1\nkind: Destination\nmetadata: { name: local }\nspec: { connector: duckdb, config: { path: orders.duckdb } }\n"
	pipeline    = "apiVersion: openetl.io/v1alpha1\nkind: Pipeline\nmetadata: { name: orders }\nspec:\n  source: { name: orders }\n  destination: { name: local }\n"
)

func sourceWith(config string) string {
	return strings.Replace(source, "{ connector: kinesis }", "{ connector: kinesis, config: { "+config+" } }", 1)
}

func destinationWith(connector, config string) string {
	return strings.Replace(destination, "{ connector: duckdb, config: { path: orders.duckdb } }",
		"{ connector: "+connector+", config: { "+config+" } }", 1)
}

func pipelineWith(lines ...string) string {
	out := pipeline
	for _, l := range lines {
		out += "  " + l + "\n"
	}
	return out
}

func documents(parts ...string) string { return strings.Join(parts, "---\n") }

func parse(t *testing.T, text string) *Set {
	t.Helper()
	set, err := Parse(File{"test.yaml", text})
	if err != nil {
		t.Fatalf("documents are refused:\n%v\n%s", err, text)
	}
	return set
}

// refused is the faults of a text that must have some.
func refused(t *testing.T, text string) Faults {
	t.Helper()
	_, err := Parse(File{"test.yaml", text})
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("documents are accepted (error: %v):\n%s", err, text)
	}
	return faults
}

func TestExamplesPassWithoutEnvironment(t *testing.T) {
	for _, name := range examples {
		set, err := Load(name)
		if err != nil {
			t.Fatalf("%s:\n%v", name, err)
		}
		if got := len(set.Pipelines()); got != 1 {
			t.Errorf("%s: got %d pipelines, want 1", name, got)
		}
	}
}

// The first example writes every default out; the least documents leave all to them.
func TestExampleIsTheDefaults(t *testing.T) {
	example, err := Load(examples[0])
	if err != nil {
		t.Fatal(err)
	}
	least := parse(t, documents(sourceWith(`region: eu-west-1, streams: ["orders"]`), destination, pipeline))
	want, got := example.Pipelines()[0], least.Pipelines()[0]
	if !reflect.DeepEqual(got.Pipeline, want.Pipeline) {
		t.Errorf("got pipeline  %+v\nwant pipeline %+v", got.Pipeline, want.Pipeline)
	}
	if !reflect.DeepEqual(got.Source, want.Source) {
		t.Errorf("got source  %+v\nwant source %+v", got.Source, want.Source)
	}
	if !reflect.DeepEqual(got.Destination, want.Destination) {
		t.Errorf("got destination  %+v\nwant destination %+v", got.Destination, want.Destination)
	}
}

func TestLoadReadsFilesFoldersAndEachOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a.yaml", source)
	write("b.yml", destination)
	p := write("c.yaml", pipeline)
	write(".hidden.yaml", "no: document")
	write("readme.txt", "no: document")
	write("deep/d.yaml", "no: document")
	set, err := Load(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(set.Pipelines()); got != 1 {
		t.Errorf("got %d pipelines, want 1", got)
	}
}

func TestLoadReadsStandardInput(t *testing.T) {
	in, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.WriteString(source + "oops: 1\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	was := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = was }()
	_, err = Load("-")
	if err == nil || !strings.HasPrefix(err.Error(), `stdin:5:1: unknown key "oops"`) {
		t.Errorf("got %v", err)
	}
}

func TestLoadReportsAllFilesAtOnce(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(source+"oops: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Load(filepath.Join(dir, "gone.yaml"), empty, bad)
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 3 {
		t.Fatalf("got %v, want 3 faults", err)
	}
	for i, want := range []string{"no such file", "no .yaml or .yml file", `unknown key "oops"`} {
		if !strings.Contains(faults[i].Message, want) {
			t.Errorf("fault %d: got %q, want %q in it", i, faults[i].Message, want)
		}
	}
}

// The parser by itself drops the documents after an empty one without a word.
func TestEmptyDocumentsHideNothing(t *testing.T) {
	set := parse(t, "# head\n---\n---\n"+source+"---\n# nothing\n---\n"+destination+"...\n--- # comment\n"+pipeline+"---\n")
	if got := len(set.documents); got != 3 {
		t.Errorf("got %d documents, want 3", got)
	}
}

func TestTextsOfOtherEditors(t *testing.T) {
	parse(t, "\ufeff"+strings.ReplaceAll(documents(source, destination, pipeline), "\n", "\r\n"))
	faults := refused(t, strings.ReplaceAll("apiVersion: openetl.io/v1alpha1\nkind: Source\nmetadata: { name: \"a\n  b\" }\nspec: { connector: kinesis }\noops: 1\n", "\n", "\r\n"))
	if last := faults[len(faults)-1]; last.Line != 6 || last.Column != 1 {
		t.Errorf("got %d:%d, want 6:1", last.Line, last.Column)
	}
}

func TestAnchorsAndAliases(t *testing.T) {
	set := parse(t, documents(sourceWith("region: &r eu-west-1, streams: [*r]"), destination, pipelineWith("workerId: !!str 12")))
	plan := set.Pipelines()[0]
	if got := plan.Streams(); len(got) != 1 || got[0] != "eu-west-1" {
		t.Errorf("got streams %v", got)
	}
	if plan.Pipeline.Spec.WorkerID != "12" {
		t.Errorf("got workerId %q", plan.Pipeline.Spec.WorkerID)
	}
}

func TestFaultHasPlaceExcerptAndSuggestion(t *testing.T) {
	faults := refused(t, "# head\n---\n"+strings.Replace(source, "{ connector: kinesis }", "\n  connector: kinesis\n  config:\n    stremas: [\"orders\"]", 1))
	want := Fault{
		File: "test.yaml", Line: 9, Column: 5,
		Message: `unknown key "stremas" in spec.config`, Suggestion: `did you mean "streams"?`,
		Excerpt: "  9 |     stremas: [\"orders\"]\n    |     ^",
	}
	if len(faults) != 1 || faults[0] != want {
		t.Errorf("got  %#v\nwant %#v", faults, want)
	}
	text, err := json.Marshal(faults)
	if err != nil || !strings.Contains(string(text), `"line":9,"column":5,"message":"unknown key`) {
		t.Errorf("got JSON %s, %v", text, err)
	}
	wantText := `test.yaml:9:5: unknown key "stremas" in spec.config; did you mean "streams"?` + "\n" + want.Excerpt
	if got := faults.Error(); got != wantText {
		t.Errorf("got  %s\nwant %s", got, wantText)
	}
}

// A file as deep as the limits allow is refused in a moment, not in minutes.
func TestDeepTextsAreRefused(t *testing.T) {
	for _, unit := range []string{"[", "{a: ", "- ", "&a ", "!!x ", "? ", "a: ", "\"", "*a ", "| ", "[\n", "{\n", "- \n", "?\n"} {
		faults := refused(t, strings.Repeat(unit, maxLine/len(unit)))
		if len(faults) == 0 {
			t.Errorf("%q repeated: no fault", unit)
		}
	}
	if faults := refused(t, strings.Repeat("#\n", maxFile)); !strings.Contains(faults[0].Message, "larger than 1MiB") {
		t.Errorf("got %v", faults)
	}
}
