package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// R20: whatever worker ids hold, a signal is read as it was written, and is short.
func TestSignals(t *testing.T) {
	calls := []call{{"host-12-ab", 1, 3}, {"a b:c%d\n", 1<<63 + 1, 0}, {"w\u00e4", 2, 1}}
	text := formatSignal(calls)
	got, ok := parseSignal(text)
	if !ok || !slices.Equal(got, calls) {
		t.Errorf("%q was read as %v", text, got)
	}
	for _, text := range []string{"", "2 a 1 1", "1 a 1", "1 a 1 1 ", "1 a -1 1", "1 a 1 x", "1 %zz 1 1", "1  1 1", "1" + strings.Repeat(" a 1 1", 1000)} {
		if got, ok := parseSignal(text); ok {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	calls = nil
	for i := range 100 {
		calls = append(calls, call{fmt.Sprint("w", i), 1, 1})
	}
	if got, ok := parseSignal(formatSignal(calls)); !ok || len(got) != mostCalls || got[mostCalls-1].worker != "w99" {
		t.Errorf("of 100 calls %d were read", len(got))
	}
}

func FuzzParseSignal(f *testing.F) {
	for _, s := range []string{"1", "1 a 1 2", "1 a%20b 18446744073709551615 0 c 1 1", "2 x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		calls, ok := parseSignal(text)
		if !ok {
			return
		}
		again, ok := parseSignal(formatSignal(calls))
		if !ok || !slices.Equal(calls, again) {
			t.Errorf("%q is %v, then %v", text, calls, again)
		}
	})
}
