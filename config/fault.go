package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Fault is one thing that is wrong with the documents.
type Fault struct {
	File       string `json:"file"`
	Line       int    `json:"line,omitempty"`   // from 1; 0: the file as a whole
	Column     int    `json:"column,omitempty"` // from 1, in characters
	Message    string `json:"message"`          // what is wrong, one line
	Suggestion string `json:"suggestion,omitempty"`
	Excerpt    string `json:"excerpt,omitempty"` // the line, with a caret below; literal secrets are masked
}

// Error is the fault in one line: place, message and suggestion.
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	b.WriteString(": " + f.Message)
	if f.Suggestion != "" {
		b.WriteString("; " + f.Suggestion)
	}
	return b.String()
}

// Faults is everything that is wrong with the documents, by file in the order given,
// line and column. It is the error of Load, Parse and Resolve.
type Faults []Fault

// Error is all faults, each with its excerpt.
func (f Faults) Error() string {
	var b strings.Builder
	for i, fault := range f {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(fault.Error())
		if fault.Excerpt != "" {
			b.WriteByte('\n')
			b.WriteString(fault.Excerpt)
		}
	}
	return b.String()
}

// err is the faults as an error: nil when there are none.
func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// sorted orders faults by the place of their file in files, then line and column.
func (f Faults) sorted(files []string) Faults {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	return f
}

// excerptWidth is how much of a line an excerpt shows.
const excerptWidth = 120

// excerpt shows a line with a caret below the column. Texts in secrets are masked:
// faults end up in logs of build servers.
func excerpt(line string, number, column int, secrets []string) string {
	runes := []rune(line)
	at := min(max(column-1, 0), len(runes))
	before, after := mask(string(runes[:at]), secrets), mask(string(runes[at:]), secrets)
	head, tail := []rune(before), []rune(after)
	if len(head)+len(tail) > excerptWidth {
		head = head[max(0, len(head)-excerptWidth/2):]
		tail = tail[:min(len(tail), excerptWidth-len(head))]
	}
	caret := make([]rune, len(head))
	for i, r := range head {
		caret[i] = ' '
		if r == '\t' {
			caret[i] = '\t'
		}
	}
	label := strconv.Itoa(number)
	return fmt.Sprintf("  %s | %s%s\n  %s | %s^", label, printable(head), printable(tail),
		strings.Repeat(" ", len(label)), string(caret))
}

// mask replaces the secrets in s.
func mask(s string, secrets []string) string {
	for _, secret := range secrets {
		s = strings.ReplaceAll(s, secret, hidden)
	}
	return s
}

// printable replaces what would steer a terminal.
func printable(s []rune) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, string(s))
}
