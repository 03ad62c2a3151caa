package config

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that no printing shows: String, every fmt verb, JSON, text and
// slog give "***". Only Reveal gives the text.
type Secret struct {
	// A pointer: fmt reaches unexported fields without asking their methods, and
	// prints an address for a pointer below the top.
	text *string
}

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal is the text, "" when there is none.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

const hidden = "***"

// String is "***".
func (s Secret) String() string { return hidden }

// GoString is "***".
func (s Secret) GoString() string { return hidden }

// Format prints "***" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue is "***".
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalJSON is "***".
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalText is "***".
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalYAML is "***".
func (s Secret) MarshalYAML() (any, error) { return hidden, nil }
