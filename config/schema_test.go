package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the schemas and the configuration reference anew")

type object = map[string]any

// comments are the doc comments of the package's struct fields, by struct and field,
// each as one line. They are the descriptions of schemas and reference.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range s.Fields.List {
				for _, id := range f.Names {
					out[spec.Name.Name+"."+id.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
			return true
		})
	}
	return out
}

// comment is the doc comment of a field of struct type t.
func comment(all map[string]string, t reflect.Type, f field) string {
	for _, i := range f.index[:len(f.index)-1] {
		t = t.Field(i).Type
	}
	return all[t.Name()+"."+t.Field(f.index[len(f.index)-1]).Name]
}

// generator makes the schemas.
type generator struct {
	t        *testing.T
	comments map[string]string
}

// document is the schema of one kind.
func (g generator) document(v any) object {
	t := reflect.TypeOf(v)
	out := g.object(t)
	out["properties"].(object)["kind"].(object)["enum"] = []string{t.Name()}
	return out
}

// root completes a schema to one of its own.
func root(schema object, title string) object {
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema["title"] = title
	name := object{"type": "string", "pattern": refName.String()}
	one := func(key string) object {
		return object{"type": "object", "additionalProperties": false, "required": []string{key}, "properties": object{key: name}}
	}
	env, secret := one("env"), one("secret")
	env["description"] = "The value of an environment variable."
	secret["description"] = "The value of a secret: a file in the folder of secrets, else an environment variable."
	schema["definitions"] = object{"env": env, "secret": secret}
	return schema
}

func (g generator) object(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		schema := g.field(f)
		schema["description"] = comment(g.comments, t, f)
		if schema["description"] == "" {
			g.t.Errorf("%s has no doc comment for key %s", t, f.name)
		}
		if f.def != "" {
			schema["default"] = defaultOf(g.t, f)
		}
		properties[f.name] = schema
		if f.required {
			required = append(required, f.name)
		}
	}
	out := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	if c := g.conditions(t); len(c) > 0 {
		out["allOf"] = c
	}
	return out
}

// defaultOf is a default as a document would have it.
func defaultOf(t *testing.T, f field) any {
	switch kindOf(f.typ) {
	case kindInt, kindFloat, kindBool:
		var v any
		if err := json.Unmarshal([]byte(f.def), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return f.def
}

var (
	envRef    = object{"$ref": "#/definitions/env"}
	secretRef = object{"$ref": "#/definitions/secret"}
)

const (
	durationPattern = `^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|ms|s|m|h))+$`
	sizePattern     = `^[0-9]+([KMGT]i?B|B)?$`
)

func (g generator) field(f field) object {
	switch kindOf(f.typ) {
	case kindText:
		if f.literal {
			return text(f)
		}
		return anyOf(text(f), envRef)
	case kindSecret:
		if f.secret {
			return anyOf(secretRef, envRef)
		}
		return anyOf(text(f), secretRef, envRef)
	case kindInt:
		out := object{"type": "integer", "minimum": 1}
		if f.max != "" {
			out["maximum"], _ = strconv.Atoi(f.max)
		}
		return anyOf(out, envRef)
	case kindFloat:
		out := object{"type": "number", "exclusiveMinimum": 0}
		if f.max != "" {
			out["maximum"], _ = strconv.ParseFloat(f.max, 64)
		}
		return anyOf(out, envRef)
	case kindBool:
		return anyOf(object{"type": "boolean"}, envRef)
	case kindDuration:
		return anyOf(object{"type": "string", "pattern": durationPattern}, envRef)
	case kindSize:
		return anyOf(object{"type": "string", "pattern": sizePattern}, object{"type": "integer", "minimum": 1}, envRef)
	case kindList:
		return object{"type": "array", "minItems": 1, "uniqueItems": true, "items": g.field(f.element())}
	case kindRole:
		return anyOf(text(fieldsOf(roleType)[0]), envRef, g.object(roleType))
	case kindConfig:
		return object{"type": "object"}
	}
	t := f.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return g.object(t)
}

func anyOf(schemas ...object) object { return object{"anyOf": schemas} }

func text(f field) object {
	if len(f.enum) > 0 {
		return object{"enum": f.enum}
	}
	out := object{"type": "string", "minLength": 1, "not": object{"pattern": `\$\{`}}
	if p := formats[f.is].pattern; p != "" {
		out["pattern"] = p
	}
	return out
}

// is holds for an object whose key has one of the words.
func is(key string, words ...string) object {
	return object{"required": []string{key}, "properties": object{key: object{"enum": words}}}
}

// needs holds for an object that has the keys.
func needs(keys ...string) object { return object{"required": keys} }

// lacks holds for an object that has none of the keys.
func lacks(keys ...string) object {
	out := object{}
	for _, k := range keys {
		out[k] = false
	}
	return object{"properties": out}
}

func when(condition, then object) object { return object{"if": condition, "then": then} }

// conditions are what a struct's tags can't say: keys that depend on each other.
func (g generator) conditions(t reflect.Type) []object {
	var out []object
	has := func(name string) bool { _, ok := t.FieldByName(name); return ok }
	if has("AccessKeyID") {
		out = append(out, when(needs("accessKeyId"), needs("secretAccessKey")), when(needs("secretAccessKey"), needs("accessKeyId")))
	}
	if has("SchemaRegistryURL") {
		out = append(out, when(is("format", "avro", "protobuf"), needs("schemaRegistryUrl")),
			when(needs("schemaRegistryUsername"), needs("schemaRegistryUrl")),
			when(needs("schemaRegistryPassword"), needs("schemaRegistryUrl")))
	}
	switch t {
	case reflect.TypeFor[PipelineSpec]():
		out = append(out, when(is("mode", "scheduled"), needs("schedule")),
			when(anyOf(lacks("mode"), is("mode", "continuous")), lacks("schedule")))
	case reflect.TypeFor[Leases]():
		out = append(out, when(is("store", "dynamodb"), lacks("path")),
			when(anyOf(lacks("store"), is("store", "sqlite")), lacks("table", "aws")))
	case reflect.TypeFor[Iceberg]():
		out = append(out, when(is("catalog", "rest"), needs("uri")))
	case reflect.TypeFor[DestinationSpec]():
		for _, f := range fieldsOf(t) {
			if f.name != "connector" {
				continue
			}
			for _, connector := range f.enum {
				config := g.object(reflect.TypeOf(newConfig(connector)).Elem())
				then := object{"properties": object{"config": config}}
				if config["required"] != nil {
					then["required"] = []string{"config"}
				}
				out = append(out, when(is("connector", connector), then))
			}
		}
	}
	return out
}

// generated is every schema by file name.
func generated(t *testing.T) map[string][]byte {
	t.Helper()
	g := generator{t, comments(t)}
	schemas := map[string]object{
		"source":      root(g.document(Source{}), "kinetl Source"),
		"destination": root(g.document(Destination{}), "kinetl Destination"),
		"pipeline":    root(g.document(Pipeline{}), "kinetl Pipeline"),
		"kinetl": root(object{"oneOf": []object{g.document(Source{}), g.document(Destination{}), g.document(Pipeline{})}},
			"kinetl document"),
	}
	out := map[string][]byte{}
	for name, schema := range schemas {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		if err := enc.Encode(schema); err != nil {
			t.Fatal(err)
		}
		out[name+".schema.json"] = b.Bytes()
	}
	return out
}

// current compares a generated file with the one that is kept, or writes it.
func current(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run go test ./config -update", name)
	}
}

func TestSchemasAreCurrent(t *testing.T) {
	for name, want := range generated(t) {
		current(t, filepath.Join("../schemas", name), want)
	}
}

func TestSchemaServesEveryKind(t *testing.T) {
	for _, kind := range []string{"", "source", "Destination", "Pipeline"} {
		text, err := Schema(kind)
		if err != nil || !json.Valid(text) {
			t.Errorf("Schema(%q): %v, valid JSON: %v", kind, err, json.Valid(text))
		}
	}
	if _, err := Schema("SecretStore"); err == nil {
		t.Error("Schema of a kind that does not exist gives no error")
	}
}

// validator says what the schemas have against the documents of a text: that of any
// document, and that of the document's kind, must agree.
func validator(t *testing.T) func(text string) error {
	t.Helper()
	compiled := map[string]*jsonschema.Schema{}
	for name, text := range generated(t) {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(name, doc); err != nil {
			t.Fatal(err)
		}
		if compiled[name], err = c.Compile(name); err != nil {
			t.Fatal(err)
		}
	}
	return func(text string) error {
		for _, p := range split(strings.Split(text, "\n")) {
			if p.empty {
				continue
			}
			asJSON, err := yaml.YAMLToJSON([]byte(p.text))
			if err != nil {
				return err
			}
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
			if err != nil {
				return err
			}
			whole := compiled["kinetl.schema.json"].Validate(doc)
			kind := ""
			if m, ok := doc.(map[string]any); ok {
				kind, _ = m["kind"].(string)
			}
			if one := compiled[strings.ToLower(kind)+".schema.json"]; one != nil {
				if err := one.Validate(doc); (err == nil) != (whole == nil) {
					t.Errorf("the schema of %s says %v, that of any document %v", kind, err, whole)
				}
			}
			if whole != nil {
				return whole
			}
		}
		return nil
	}
}

func TestExamplesPassTheSchemas(t *testing.T) {
	validate := validator(t)
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(string(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
