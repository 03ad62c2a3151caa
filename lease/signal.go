package lease

import (
	"net/url"
	"strconv"
	"strings"
)

// call is one worker's word on the signal of the first lease row (R20).
type call struct {
	worker string
	number uint64 // grows with each call of that worker
	want   int    // leases that it lacks; 0: it has stopped and released its own
}

// signalVersion begins a signal. What another version wrote is news, and no more.
const signalVersion = "1"

// mostCalls bounds the text: the row is read by every worker once a second.
const mostCalls = 32

// formatSignal writes calls, the last mostCalls of them. Three words each: worker,
// number, want; workers escaped, since ids may hold anything.
func formatSignal(calls []call) string {
	var b strings.Builder
	b.WriteString(signalVersion)
	for _, c := range calls[max(0, len(calls)-mostCalls):] {
		b.WriteString(" " + url.QueryEscape(c.worker) + " " + strconv.FormatUint(c.number, 10) + " " + strconv.Itoa(c.want))
	}
	return b.String()
}

// parseSignal reads a signal. ok is false for a text that this version did not write.
func parseSignal(text string) (calls []call, ok bool) {
	words := strings.Split(text, " ")
	if words[0] != signalVersion || len(words)%3 != 1 || len(words) > 1+3*mostCalls {
		return nil, false
	}
	for w := words[1:]; len(w) > 0; w = w[3:] {
		worker, err := url.QueryUnescape(w[0])
		number, err1 := strconv.ParseUint(w[1], 10, 64)
		want, err2 := strconv.ParseUint(w[2], 10, 31)
		if err != nil || err1 != nil || err2 != nil || worker == "" {
			return nil, false
		}
		calls = append(calls, call{worker, number, int(want)})
	}
	return calls, true
}
