package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"strings"
	"testing"
)

const mostInapplicable = 5

// required are the cases that docs/cases.md must have, at least.
func required() (out []string) {
	for _, r := range [][2]int{{1, 2}, {5, 7}, {10, 11}, {13, 13}, {15, 15}, {17, 22}, {24, 24}, {26, 40}} {
		for n := r[0]; n <= r[1]; n++ {
			out = append(out, fmt.Sprint("K", n))
		}
	}
	for n := 1; n <= 27; n++ {
		out = append(out, fmt.Sprint("C", n))
	}
	return out
}

// docs/cases.md names a test of each case, by its package. One that is renamed, moved or
// dropped must not leave its case unproven in silence.
func TestCasesNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]string{}
	seen := map[string]int{}
	inapplicable := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		id := strings.TrimPrefix(cells[0], "| ")
		if !regexp.MustCompile(`^[KCT][0-9]+$`).MatchString(id) {
			continue
		}
		seen[id]++
		tests := regexp.MustCompile("`(?:([a-z/]+): )?((?:Test|Fuzz|Example)\\w+)`").FindAllStringSubmatch(cells[len(cells)-1], -1)
		for _, m := range tests {
			if !hasTest(t, packages, m[1], m[2]) {
				t.Errorf("%s names %s, which package %q does not have", id, m[2], m[1])
			}
		}
		if len(tests) == 0 {
			inapplicable++
			if !strings.Contains(line, "does not apply: ") {
				t.Errorf("%s has neither a test nor a reason why it does not apply", id)
			}
		}
	}
	for _, id := range required() {
		if seen[id] != 1 {
			t.Errorf("docs/cases.md has %s %d times", id, seen[id])
		}
	}
	if inapplicable > mostInapplicable {
		t.Errorf("%d cases do not apply, at most %d may", inapplicable, mostInapplicable)
	}
}

// hasTest reports whether the package in a folder has a test of this name.
func hasTest(t *testing.T, packages map[string]string, folder, name string) bool {
	t.Helper()
	if _, read := packages[folder]; !read {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			packages[folder] += string(text)
		}
	}
	return strings.Contains(packages[folder], fmt.Sprintf("func %s(", name))
}
