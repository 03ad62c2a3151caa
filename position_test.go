package kinetl_test

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
	"pgregory.net/rapid"
)

// place is a position, and numbers that order it as the text must.
type place struct {
	position kinetl.Position
	rank     int // oldest, instant, record, end
	major    *big.Int
	minor    uint64
}

func places() *rapid.Generator[place] {
	return rapid.Custom(func(t *rapid.T) place {
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			return place{kinetl.Oldest, 0, new(big.Int), 0}
		case 1:
			return place{kinetl.End, 3, new(big.Int), 0}
		case 2:
			ms := rapid.Int64Range(0, 4102444800000).Draw(t, "ms")
			return place{kinetl.Since(time.UnixMilli(ms)), 1, big.NewInt(ms), 0}
		}
		digits := rapid.StringMatching(`0|[1-9][0-9]{0,3}|[1-9][0-9]{0,128}`).Draw(t, "sequence")
		n, _ := new(big.Int).SetString(digits, 10)
		sub := rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64()).Draw(t, "sub")
		return place{kinetl.At(digits, sub), 2, n, sub}
	})
}

func (a place) compare(b place) int {
	switch {
	case a.rank != b.rank:
		return a.rank - b.rank
	case a.major.Cmp(b.major) != 0:
		return a.major.Cmp(b.major)
	case a.minor < b.minor:
		return -1
	case a.minor > b.minor:
		return 1
	}
	return 0
}

// R2: the order of the texts is the order of the places, and places are the same if
// their texts are.
func TestPositionsOrderAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := places().Draw(t, "a"), places().Draw(t, "b")
		want := a.compare(b)
		got := strings.Compare(string(a.position), string(b.position))
		if (want < 0) != (got < 0) || (want > 0) != (got > 0) {
			t.Fatalf("%s and %s compare as %d, their texts as %d", a.position, b.position, want, got)
		}
	})
}

// The stored text of a position reads back as the position, its record and instant.
func TestPositionsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := places().Draw(t, "a")
		p, err := kinetl.ParsePosition(string(a.position))
		if err != nil || p != a.position {
			t.Fatalf("%q reads back as %q, %v", a.position, p, err)
		}
		if seq, sub, ok := p.Sequence(); ok != (a.rank == 2) || ok && (seq != a.major.String() || sub != a.minor) {
			t.Fatalf("%s holds record %s.%d, %v", p, seq, sub, ok)
		}
		if at, ok := p.Instant(); ok != (a.rank == 1) || ok && at.UnixMilli() != a.major.Int64() {
			t.Fatalf("%s holds instant %s, %v", p, at, ok)
		}
		if p.IsStart() != (a.rank < 2) {
			t.Fatalf("%s: IsStart is %v", p, p.IsStart())
		}
	})
}

// An instant between two milliseconds is a start before both: records carry
// milliseconds only.
func TestSinceLosesNoRecord(t *testing.T) {
	at := time.UnixMilli(1700000000123)
	if got, _ := kinetl.Since(at.Add(999 * time.Microsecond)).Instant(); !got.Equal(at) {
		t.Errorf("the instant is kept as %s, want %s", got, at.UTC())
	}
}

func TestPositionsForPeople(t *testing.T) {
	for p, want := range map[kinetl.Position]string{
		kinetl.Oldest: "oldest", kinetl.End: "END", kinetl.At("42", 0): "42", kinetl.At("42", 7): "42.7", kinetl.At("0", 0): "0",
		kinetl.Since(time.UnixMilli(0)): "since 1970-01-01T00:00:00.000Z", "": "",
	} {
		if got := p.String(); got != want {
			t.Errorf("%q for people is %q, want %q", string(p), got, want)
		}
	}
}

// Whatever parses is a position: it orders with others and reads back.
func FuzzParsePosition(f *testing.F) {
	for _, p := range []kinetl.Position{kinetl.Oldest, kinetl.End, kinetl.Since(time.UnixMilli(1700000000123)), kinetl.At("49590338271490256608559692538361571095921575989136588898", 3)} {
		f.Add(string(p))
	}
	f.Add("")
	f.Add("!since 10000-01-01T00:00:00.000Z")
	f.Add(string(kinetl.At("1", 0))[:149] + "/")
	f.Add(strings.Repeat("0", 129) + "." + strings.Repeat("9", 20))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := kinetl.ParsePosition(text)
		if err != nil {
			if p != "" {
				t.Errorf("%q is refused, and %q", text, p)
			}
			return
		}
		if string(p) != text {
			t.Errorf("%q is read as %q", text, p)
		}
		seq, sub, isRecord := p.Sequence()
		at, isInstant := p.Instant()
		switch {
		case isRecord && kinetl.At(seq, sub) != p, isInstant && kinetl.Since(at) != p:
			t.Errorf("%q is written as another text", text)
		case !isRecord && !isInstant && p != kinetl.Oldest && p != kinetl.End:
			t.Errorf("%q is no place", text)
		case p < kinetl.Oldest || p > kinetl.End:
			t.Errorf("%q is before the oldest or after the end", text)
		}
	})
}
