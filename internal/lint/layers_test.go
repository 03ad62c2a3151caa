package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layers says what of this module, and what else, non-test code may import. The
// first pattern that fits a package counts; paths are below the module's, the root
// package is ".". A pattern that ends in /... also fits everything below it.
//
// A package may always import what lies below it, unless that is for tests.
var layers = []layer{
	{match: ".", ours: []string{"lease"}, others: []string{"github.com/apache/arrow-go"}},
	{match: "lease", others: []string{}},
	{match: "kinesis/kinesistest", ours: []string{}},
	{match: "awsconf", ours: []string{}},
	{match: "config", ours: []string{".", "schemas"}},
	{match: "schemas", ours: []string{}},
	{match: "internal/lint", ours: []string{}},
	{match: "internal/sim/...", ours: []string{"/..."}},
	{match: "lease/leasetest", ours: []string{"lease"}},
	{match: "dest/desttest", ours: []string{".", "lease"}},
	{match: "dest/postgres/postgrestest", ours: []string{"kinesis/kinesistest/npmserver"}},
	{match: "kinesis/kinesistest/npmserver", ours: []string{"internal/testserver"}},
	{match: "lease/dynamolease/dynamotest", ours: []string{"internal/testserver"}},
	{match: "internal/testserver", ours: []string{}},
	{match: "lease/...", ours: []string{"lease"}},
	{match: "codec/...", ours: []string{".", "lease"}},
	{match: "kinesis/...", ours: []string{".", "lease"}},
	{match: "source/...", ours: []string{".", "lease"}},
	{match: "dest/...", ours: []string{".", "lease", "dest/rowsql"}},
	{match: "httpapi/...", ours: []string{".", "lease"}},
	{match: "cmd/...", ours: []string{"/..."}},
	{match: "bench/...", ours: []string{"/..."}},
	{match: "interop", ours: []string{}},
	{match: "examples/...", ours: []string{"/..."}},
}

type layer struct {
	match  string
	ours   []string // packages of this module; "/..." is all
	others []string // modules beside the standard library; nil: any
}

// testOnly are packages that tests alone may import, and who else may.
var testOnly = map[string][]string{
	"dest/desttest":                 {"internal/sim/..."},
	"lease/leasetest":               {"internal/sim/..."},
	"lease/dynamolease/dynamotest":  {"cmd/..."},
	"kinesis/kinesistest":           {"cmd/...", "bench/...", "examples/...", "internal/sim/..."},
	"kinesis/kinesistest/npmserver": {"dest/postgres/postgrestest"},
	"dest/postgres/postgrestest":    {"bench/...", "cmd/..."},
	"internal/sim":                  {"internal/sim/..."},
	"internal/testserver":           {"kinesis/kinesistest/npmserver", "lease/dynamolease/dynamotest"},
}

func fits(pattern, pkg string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return base == "" || pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pattern == pkg
}

func fitsAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, pkg) })
}

// relative is a package's path below the module's.
func relative(module, path string) (pkg string, ours bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// checkImport says what is wrong with non-test code of pkg importing path.
func checkImport(module, pkg, path string) string {
	i := slices.IndexFunc(layers, func(l layer) bool { return fits(l.match, pkg) })
	if i < 0 {
		return fmt.Sprintf("package %s has no layer: say in internal/lint what it may import", pkg)
	}
	l := layers[i]
	target, ours := relative(module, path)
	switch {
	case !ours && !strings.Contains(strings.SplitN(path, "/", 2)[0], "."):
		return "" // standard library
	case !ours && l.others != nil && !fitsModule(l.others, path):
		return fmt.Sprintf("package %s imports %s: it may import the standard library and %q", pkg, path, l.others)
	case !ours:
		return ""
	}
	if allowed, ok := testOnly[target]; ok {
		if fitsAny(allowed, pkg) {
			return ""
		}
		return fmt.Sprintf("package %s imports %s, which is for tests", pkg, target)
	}
	if fitsAny(l.ours, target) || pkg != "." && strings.HasPrefix(target, pkg+"/") {
		return ""
	}
	return fmt.Sprintf("package %s imports %s: of this module it may import %q", pkg, target, l.ours)
}

func fitsModule(modules []string, path string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
}

func TestLayers(t *testing.T) {
	module := modulePath(t)
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, path := range f.imports() {
				if fault := checkImport(module, p.path, path); fault != "" {
					t.Errorf("%s: %s", f.name, fault)
				}
			}
		}
	}
}

// TestLayersRefuse: the rule notices each kind of import that it is there for.
func TestLayersRefuse(t *testing.T) {
	const m = "example.com/m"
	for _, tt := range []struct {
		pkg, path string
		ok        bool
	}{
		{".", "context", true},
		{".", m + "/lease", true},
		{".", "github.com/apache/arrow-go/v18/arrow", true},
		{".", "github.com/apache/arrow-gopher", false},
		{".", "github.com/aws/aws-sdk-go-v2/aws", false},
		{".", m + "/codec", false},
		{"lease", "golang.org/x/sync/errgroup", false},
		{"lease", m, false},
		{"lease/sqlitelease", m + "/lease", true},
		{"lease/sqlitelease", m, false},
		{"codec", m, true},
		{"codec", m + "/codec/registry", true},
		{"codec", m + "/kinesis", false},
		{"dest/duckdb", m + "/dest/postgres", false},
		{"dest/duckdb", m + "/dest/desttest", false},
		{"dest/duckdb", "github.com/duckdb/duckdb-go/v2", true},
		{"kinesis", m + "/kinesis/kinesistest", false},
		{"kinesis/kinesistest", m, false},
		{"httpapi", m + "/kinesis", false},
		{"awsconf", m, false},
		{"config", m, true},
		{"config", m + "/awsconf", false},
		{"cmd/kinetl", m + "/dest/duckdb", true},
		{"cmd/kinetl", m + "/kinesis/kinesistest", true},
		{"cmd/kinetl", m + "/kinesis/kinesistest/npmserver", false},
		{"cmd/kinetl", m + "/internal/sim", false},
		{"internal/sim", m + "/dest/desttest", true},
		{"surprise", "context", false},
	} {
		if fault := checkImport(m, tt.pkg, tt.path); (fault == "") != tt.ok {
			t.Errorf("%s imports %s: %q, want it allowed: %t", tt.pkg, tt.path, fault, tt.ok)
		}
	}
}
