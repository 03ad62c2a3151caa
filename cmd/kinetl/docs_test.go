package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const repository = "../.."

// documentation is every Markdown file that a reader is sent to.
func documentation(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		names, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(text)
		}
	}
	if len(texts) < 6 {
		t.Fatalf("found only %d files", len(texts))
	}
	return texts
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```")

// blocks are the code blocks of a language.
func blocks(text, language string) (out []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			out = append(out, m[2])
		}
	}
	return out
}

// Documents that are shown are valid.
func TestDocumentsInDocs(t *testing.T) {
	n := 0
	for name, text := range documentation(t) {
		for _, block := range blocks(text, "yaml") {
			n++
			file := filepath.Join(t.TempDir(), "shown.yaml")
			writeFile(t, file, block)
			if code, _, stderr := kinetlWith("", "check", "--offline", file); code != exitDone {
				t.Errorf("%s: exit code %d: %s", name, code, stderr)
			}
		}
	}
	if n == 0 {
		t.Error("no document was found: this proves nothing")
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// Links within the repository lead to a file, and to a heading in it.
func TestLinksInDocs(t *testing.T) {
	for name, text := range documentation(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := filepath.Join(filepath.Dir(name), target)
			if target == "" {
				path = name
			}
			there, err := os.ReadFile(path)
			if info, e := os.Stat(path); e == nil && info.IsDir() && anchor == "" {
				continue
			}
			if err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(slugs(string(there)), anchor) {
				t.Errorf("%s links to %s: no such heading", name, m[1])
			}
		}
	}
}

// slugs are the anchors of a file's headings, as they are made on the web.
func slugs(text string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := noSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(slug, " ", "-"))
	}
	return out
}

var inline = regexp.MustCompile("`([^`]+)`")

// Every call of the program that is shown, in docs, examples and help, is one that it
// understands.
func TestCommandsInDocs(t *testing.T) {
	n := 0
	check := func(where, line string, whole bool) {
		for _, call := range calls(line) {
			n++
			if fault := parseCall(call, whole); fault != "" {
				t.Errorf("%s: %s: %s", where, strings.Join(call, " "), fault)
			}
		}
	}
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range documentation(t) {
		for _, block := range blocks(text, "sh") {
			for _, line := range strings.Split(block, "\n") {
				check(name, line, true)
				target, ok := strings.CutPrefix(line, "make ")
				target, _, _ = strings.Cut(target, " ")
				if ok && !strings.Contains(string(makefile), "\n"+target+":") {
					t.Errorf("%s: make %s: there is no such target", name, target)
				}
			}
		}
		for _, m := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			check(name, strings.Join(strings.Fields(m[1]), " "), false)
		}
	}
	for name, text := range exampleFiles(t) {
		for _, line := range strings.Split(text, "\n") {
			if comment, ok := strings.CutPrefix(line, "#   "); ok {
				check(name, comment, true)
			}
		}
	}
	for _, cmd := range allCommands(newRoot()) {
		if cmd.Example == "" && !cmd.HasSubCommands() {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			check(cmd.CommandPath()+" --help", line, true)
		}
	}
	if n < 40 {
		t.Errorf("only %d calls were found", n)
	}
}

// calls are the words of each call of kinetl on a line of a shell, without its name.
func calls(line string) (out [][]string) {
	for _, words := range shellCommands(line) {
		if len(words) > 0 && (words[0] == "kinetl" || words[0] == "bin/kinetl") {
			out = append(out, words[1:])
		}
	}
	return out
}

// shellCommands splits a line into commands and words, minding quotes and comments.
func shellCommands(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	var quote rune
	started := false
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == '#' && !started:
			end()
			return append(commands, words)
		case r == '|' || r == ';' || r == '>':
			end()
			commands, words = append(commands, words), nil
		case r == ' ':
			end()
		default:
			word.WriteRune(r)
			started = true
		}
	}
	end()
	return append(commands, words)
}

// parseCall says what is wrong with a call; of one that is named within a sentence,
// arguments may be left out.
func parseCall(words []string, whole bool) string {
	if len(words) == 0 || words[0] == strings.ToUpper(words[0]) && words[0][0] != '-' {
		return "" // the program itself, or kinetl COMMAND
	}
	root := newRoot()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	if cmd == root || cmd.HasSubCommands() && whole {
		return "no such command"
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if !whole || cmd.Args == nil {
		return ""
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err.Error()
	}
	return ""
}

func allCommands(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		out = append(out, allCommands(c)...)
	}
	return out
}

// Every command says what it does, in lines that fit a terminal.
func TestHelp(t *testing.T) {
	for _, cmd := range allCommands(newRoot()) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		code, stdout, stderr := kinetlWith("", args...)
		if code != exitDone || stderr != "" || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%s --help: exit code %d: %s", cmd.CommandPath(), code, stderr)
		}
		for _, line := range strings.Split(cmd.Long, "\n") {
			if len(line) > 90 {
				t.Errorf("%s --help: a line of %d characters: %s", cmd.CommandPath(), len(line), line)
			}
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s has no short description, or one with a full stop", cmd.CommandPath())
		}
	}
}

// exampleFiles are the documents of examples/ by their path.
func exampleFiles(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(repository, "examples", "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	texts := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(bytes.TrimSpace(text))
	}
	return texts
}
