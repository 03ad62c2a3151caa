package lint

import (
	"strings"
	"testing"
)

// TestRulesRefuse: each rule notices what it is there for, and only there.
func TestRulesRefuse(t *testing.T) {
	const sleeps = "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"
	for _, tt := range []struct {
		rule, pkg, name, text string
		ok                    bool
	}{
		{"lines", "p", "p/a.go", "package p\n" + strings.Repeat("\n", maxLines-1), true},
		{"lines", "p", "p/a.go", "package p\n" + strings.Repeat("\n", maxLines), false},
		{"lines", "p", "p/a_test.go", "package p\n" + strings.Repeat("\n", maxLines), true},
		{"no init", "p", "p/a.go", "package p\nfunc init() {}\n", false},
		{"no init", "p", "p/a.go", "package p\ntype t int\nfunc (t) init() {}\n", true},
		{"no contexts", "p", "p/a.go", "package p\nimport \"context\"\ntype s struct{ ctx context.Context }\n", false},
		{"no contexts", "p", "p/a.go", "package p\nimport c \"context\"\ntype s struct{ c.Context }\n", false},
		{"no contexts", "p", "p/a.go", "package p\nimport \"context\"\nfunc f() { _ = struct{ m map[string]context.Context }{} }\n", false},
		{"no contexts", "p", "p/a.go", "package p\nimport \"context\"\ntype s struct{ f func(context.Context); stop context.CancelFunc }\n", true},
		{"no contexts", "p", "p/a_test.go", "package p\nimport \"context\"\ntype s struct{ ctx context.Context }\n", true},
		{"no sleep", "p", "p/a.go", sleeps, false},
		{"no sleep", "p", "p/a.go", "package p\nimport t \"time\"\nvar f = t.Sleep\n", false},
		{"no sleep", "p", "p/a_test.go", sleeps, true},
		{"no sleep", "kinesis/kinesistest", "kinesis/kinesistest/a.go", sleeps, true},
		{"ascii", "p", "p/a.go", "package p\n// caf\u00e9\n", false},
		{"ascii", "p", "p/a.go", "package p\nvar a = \"caf\u00e9\"\n", false},
		{"ascii", "p", "p/a.go", "package p\nvar caf\u00e9 int\n", false},
		{"ascii", "p", "p/a_test.go", "package p\nvar a = \"caf\u00e9\"\n", true},
		{"ascii", "p", "p/a_test.go", "package p\nvar caf\u00e9 int\n", false},
		{"ascii", "p", "p/a_test.go", "package p\n// caf\u00e9\n", false},
		{"no to-do", "p", "p/a.go", "package p\n// TO" + "DO later\n", false},
		{"no to-do", "p", "p/a.go", "package p\n// FIX" + "ME\n", false},
		{"no to-do", "p", "p/a.go", "package p\n// mastodon, todos\n", true},
	} {
		f, err := parse(tt.pkg, tt.name, []byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		if faults := rules[tt.rule](f); (len(faults) == 0) != tt.ok {
			t.Errorf("%s: %q finds %q, want it allowed: %t", tt.name, tt.rule, faults, tt.ok)
		}
	}
}

func TestPackageRulesRefuse(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"codec", "// Package codec does.\npackage codec\n", true},
		{"codec", "package codec\n", false},
		{"helpers", "// Package helpers does.\npackage helpers\n", false},
	} {
		f, err := parse(tt.name, tt.name+"/a.go", []byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		if faults := checkPackage(&pkg{path: tt.name, name: tt.name, files: []*file{f}}); (len(faults) == 0) != tt.ok {
			t.Errorf("%q: %q, want it allowed: %t", tt.text, faults, tt.ok)
		}
	}
}
