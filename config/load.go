package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Set is all documents given, checked.
type Set struct {
	files     []*file
	documents []*document
}

// File is the text of one file, and the name by which faults call it.
type File struct{ Name, Text string }

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Load reads documents from files, from the *.yaml and *.yml files of folders (not of
// folders within them, nor hidden ones), and from standard input for "-". The error
// is Faults. Load needs nothing of the environment: references stay open until Resolve.
func Load(paths ...string) (*Set, error) {
	var files []File
	var faults Faults
	seen := map[string]bool{}
	for _, path := range paths {
		names, err := expand(path)
		if err != nil {
			faults = append(faults, Fault{File: path, Message: err.Error()})
		}
		for _, name := range names {
			if seen[filepath.Clean(name)] {
				continue
			}
			seen[filepath.Clean(name)] = true
			text, err := read(name)
			if err != nil {
				faults = append(faults, Fault{File: name, Message: err.Error()})
				continue
			}
			if name == Stdin {
				name = "stdin"
			}
			files = append(files, File{name, text})
		}
	}
	if len(faults) > 0 {
		set := newSet(files)
		set.checkEach()
		return nil, append(faults, set.faults()...)
	}
	return Parse(files...)
}

// expand lists the files that a path stands for.
func expand(path string) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, cause(err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, cause(err)
	}
	var out []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && (ext == ".yaml" || ext == ".yml") {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no .yaml or .yml file in the folder")
	}
	return out, nil
}

// read reads a file, or standard input, up to the size that a file may have.
func read(name string) (string, error) {
	in := os.Stdin
	if name != Stdin {
		f, err := os.Open(name)
		if err != nil {
			return "", cause(err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("read: %w", cause(err))
	}
	return string(text), nil
}

// cause takes the file's name out of an error: a fault has it already.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Parse reads documents from texts. The error is Faults.
func Parse(files ...File) (*Set, error) {
	set := newSet(files)
	set.check()
	if faults := set.faults(); len(faults) > 0 {
		return nil, faults
	}
	if len(set.documents) == 0 {
		return nil, Faults{{File: strings.Join(set.names(), ", "), Message: "no document in it",
			Suggestion: "a pipeline is a Source, a Destination and a Pipeline, each begun by apiVersion: " + APIVersion}}
	}
	return set, nil
}

func newSet(files []File) *Set {
	set := &Set{}
	for _, in := range files {
		f := &file{name: in.Name}
		set.files = append(set.files, f)
		set.documents = append(set.documents, f.parse(in.Text)...)
	}
	return set
}

func (s *Set) names() []string {
	out := make([]string, len(s.files))
	for i, f := range s.files {
		out[i] = f.name
	}
	return out
}

// faults takes the faults found since the last call.
func (s *Set) faults() Faults {
	var out Faults
	for _, f := range s.files {
		out = append(out, f.take()...)
	}
	return out.sorted(s.names())
}

// whole reports whether every document of every file could be read: only then does
// a missing one say something.
func (s *Set) whole() bool {
	return !slices.ContainsFunc(s.files, func(f *file) bool { return f.unusable })
}
