package config

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzLoad: no text makes Parse or Resolve panic, and every fault stands in the file.
func FuzzLoad(f *testing.F) {
	for _, c := range faultCases {
		f.Add(c.text)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("a: &a *a\n")
	f.Add("kind: Source\nmetadata: &m { name: *m }\n")
	f.Add("\ufeff---\r\n...\r\n%YAML 1.2\r\n---\r\n")
	f.Add(documents(source, destination, pipelineWith("schedule: TZ=x")))
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse(File{"a.yaml", text})
		if err == nil {
			for _, p := range set.Pipelines() {
				p.Unsupported()
			}
			err = set.Resolve(Secrets{LookupEnv: env()})
		}
		faults, ok := err.(Faults)
		if err != nil && !ok {
			t.Fatalf("the error is %T", err)
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for _, x := range faults {
			if x.Line == 0 && x.Message == "no document in it" {
				continue
			}
			if x.Line < 1 || x.Line > len(lines) {
				t.Fatalf("line %d of %d: %s", x.Line, len(lines), x.Message)
			}
			if x.Column < 1 || x.Column > utf8.RuneCountInString(lines[x.Line-1])+1 {
				t.Fatalf("column %d of %q: %s", x.Column, lines[x.Line-1], x.Message)
			}
			if strings.Contains(x.Error(), "\n") || strings.Count(x.Excerpt, "\n") != 1 {
				t.Fatalf("not one line and its excerpt: %q, %q", x.Error(), x.Excerpt)
			}
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"64MiB", "0", "1KB", "99999999999GiB", "B", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		if back, err := ParseSize(size.String()); err != nil || back != size || size < 0 {
			t.Fatalf("%q: %d comes back as %d, %v", text, size, back, err)
		}
	})
}
