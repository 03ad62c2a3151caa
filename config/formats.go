package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// format is what a text must look like. pattern is what a JSON Schema can say of it,
// check what it can't.
type format struct {
	pattern string
	want    string   // completes "... is not"
	words   []string // what it may be besides, for suggestions
	check   func(string) error
}

// Patterns of AWS names, as the services' API references give them.
const (
	streamName = `[a-zA-Z0-9_.-]{1,128}`
	streamARN  = `arn:aws[a-z0-9-]*:kinesis:[a-z0-9-]+:[0-9]{12}:stream/` + streamName
	roleARN    = `arn:aws[a-z0-9-]*:iam::[0-9]{12}:role/[a-zA-Z0-9_+=,.@/-]{1,512}`
)

// formats are the formats that a field's tag "is" names.
var formats = map[string]format{
	"name":       {pattern: `^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$`, want: "a name: up to 128 letters, digits, '_', '-' and '.'"},
	"leaseTable": {pattern: `^[a-zA-Z0-9_.-]{3,255}$`, want: "a DynamoDB table name: 3 to 255 letters, digits, '_', '-' and '.'"},
	"region":     {pattern: `^[a-z0-9-]{1,64}$`, want: "an AWS region, such as eu-west-1"},
	"url":        {pattern: `^https?://[^\s/]+\S*$`, want: "a URL that begins with http:// or https://"},
	"stream":     {pattern: `^(` + streamName + `|` + streamARN + `)$`, want: "a stream's name or ARN (arn:aws:kinesis:REGION:ACCOUNT:stream/NAME)"},
	"consumer":   {pattern: `^` + streamARN + `/consumer/[a-zA-Z0-9_.-]+:[0-9]+$`, want: "a consumer's ARN (arn:aws:kinesis:REGION:ACCOUNT:stream/NAME/consumer/CONSUMER:TIME)"},
	"role":       {pattern: `^` + roleARN + `$`, want: "a role's ARN (arn:aws:iam::ACCOUNT:role/NAME)"},
	"externalId": {pattern: `^[a-zA-Z0-9_+=,.@:/-]{2,}$`, want: "an external id: 2 to 1224 letters, digits and any of _+=,.@:/-", check: checkExternalID},
	"account":    {pattern: `^[a-zA-Z0-9_.-]+$`, want: "an account identifier, such as ORGANIZATION-ACCOUNT (not a URL)"},
	"start": {pattern: `^(earliest|latest|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt].+)$`,
		want:  "earliest, latest or an RFC 3339 time, such as 2026-11-30T00:00:00Z",
		words: []string{"earliest", "latest"}, check: checkStart},
	"cron": {pattern: `^\S+(\s+\S+){4}$`, want: "five cron fields (minute, hour, day, month, weekday)",
		check: func(s string) error { _, err := parseCron(s); return err }},
	"regexp": {want: "a regular expression (RE2)", check: func(s string) error { _, err := wholeName(s); return err }},
	"table":  {pattern: `^([^{}]|\{stream\})+$`, want: "a table name, in which {stream} is the only placeholder"},
}

// patterns are the compiled patterns of formats.
var patterns = func() map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for name, f := range formats {
		if f.pattern != "" {
			out[name] = regexp.MustCompile(f.pattern)
		}
	}
	return out
}()

// checkFormat says what is wrong with a text of a format.
func checkFormat(name, text string) error {
	f := formats[name]
	if p := patterns[name]; p != nil && !p.MatchString(text) {
		if nearest(text, f.words) != "" {
			return &wordError{text, f.words}
		}
		return fmt.Errorf("%s is not %s", quote(text), f.want)
	}
	if f.check == nil {
		return nil
	}
	if err := f.check(text); err != nil {
		return fmt.Errorf("%s is not %s: %w", quote(text), f.want, err)
	}
	return nil
}

func checkStart(s string) error {
	if s == "earliest" || s == "latest" {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return errors.New("no such date, or no time zone")
	}
	return nil
}

// checkExternalID checks what RE2 can't: it counts to a thousand.
func checkExternalID(s string) error {
	if len(s) > 1224 {
		return errors.New("too long")
	}
	return nil
}

// parseCron reads five cron fields. The library would also take a time zone before
// them, and panics where that is all there is.
func parseCron(s string) (cron.Schedule, error) {
	if len(strings.Fields(s)) != 5 || strings.Contains(s, "TZ=") {
		return nil, errors.New("want exactly five fields")
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(s)
	if err != nil {
		return nil, err
	}
	if schedule.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("no such day ever comes")
	}
	return schedule, nil
}

// wholeName compiles a pattern that must match a whole name.
func wholeName(pattern string) (*regexp.Regexp, error) {
	// By itself first: "a)(b" is balanced only inside the brackets added here.
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`^(?:` + pattern + `)$`)
}

// StreamName is the name in a stream's ARN; a name is returned as it is.
func StreamName(stream string) string {
	if _, name, ok := strings.Cut(stream, ":stream/"); ok {
		return name
	}
	return stream
}

// streamRegion is the region in a stream's ARN, "" for a name.
func streamRegion(stream string) string {
	if f := strings.Split(stream, ":"); len(f) == 6 {
		return f[3]
	}
	return ""
}

// quote quotes a text of a document for a message, shortened.
func quote(s string) string {
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "..."
	}
	return fmt.Sprintf("%q", s)
}
