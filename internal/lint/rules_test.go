package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/rules.md names the test of every rule; a test that is renamed or dropped
// must not leave its rule unproven in silence.
func TestRulesNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOfTheTree(t)
	for _, doc := range documents(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz|Example)\\w+)`").FindAllStringSubmatch(doc.text, -1) {
			if !strings.Contains(tests, "func "+m[1]+"(") {
				t.Errorf("%s names %s, which no package has", doc.name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`suite: "([^"]+)"`).FindAllStringSubmatch(doc.text, -1) {
			if !strings.Contains(tests, `"`+m[1]+`"`) {
				t.Errorf("%s names the case %q, which no suite has", doc.name, m[1])
			}
		}
	}
	for n := 1; n <= 32; n++ {
		if !strings.Contains(string(text), fmt.Sprintf("| R%d |", n)) {
			t.Errorf("docs/rules.md does not mention R%d", n)
		}
	}
}

type document struct{ name, text string }

// documents are the project's own pages.
func documents(t *testing.T) (out []document) {
	t.Helper()
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, document{name, string(text)})
		}
	}
	return out
}

// testsOfTheTree is the text of all tests and conformance suites.
func testsOfTheTree(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inSuite := strings.Contains(path, "desttest") || strings.Contains(path, "leasetest")
		if strings.HasSuffix(path, "_test.go") || inSuite && strings.HasSuffix(path, ".go") {
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
