package kinetl_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/kinetl/kinetl"
	"pgregory.net/rapid"
)

// T1, T2: no number loses a digit, whatever its size or spelling (R28).
func TestNumbersKeepTheirValue(t *testing.T) {
	digits38 := strings.Repeat("9", 38)
	for _, c := range []struct {
		literal, canonical string
		class              kinetl.Class
	}{
		{"0", "0", kinetl.Int53},
		{"1.0", "1", kinetl.Int53},
		{"1e3", "1000", kinetl.Int53},
		{"1000e-3", "1", kinetl.Int53},
		{"-12.50e1", "-125", kinetl.Int53},
		{"0e999999999999999999999", "0", kinetl.Int53},
		{"9007199254740992", "9007199254740992", kinetl.Int53},
		{"-9007199254740992", "-9007199254740992", kinetl.Int53},
		{"9007199254740993", "9007199254740993", kinetl.Int64},
		{"1234567890123456789", "1234567890123456789", kinetl.Int64},
		{"9223372036854775807", "9223372036854775807", kinetl.Int64},
		{"-9223372036854775808", "-9223372036854775808", kinetl.Int64},
		{"9223372036854775808", "9223372036854775808", kinetl.Decimal},
		{"-9223372036854775809", "-9223372036854775809", kinetl.Decimal},
		{"18446744073709551615", "18446744073709551615", kinetl.Decimal},
		{"1e20", "100000000000000000000", kinetl.Decimal},
		{digits38, digits38, kinetl.Decimal},
		{digits38 + "9", "9." + digits38 + "e+38", kinetl.Number},
		{"1" + strings.Repeat("0", 40), "1e+40", kinetl.Double},
		{"-0", "-0", kinetl.Double},
		{"-0.0", "-0", kinetl.Double},
		{"-0e5", "-0", kinetl.Double},
		{"0.1", "0.1", kinetl.Double},
		{"1.50", "1.5", kinetl.Double},
		{"1.5e-7", "1.5e-07", kinetl.Double},
		{"0.0001", "0.0001", kinetl.Double},
		{"0.00001", "1e-05", kinetl.Double},
		{"1e40", "1e+40", kinetl.Double},
		{"1.7976931348623157e308", "1.7976931348623157e+308", kinetl.Double},
		{"5e-324", "5e-324", kinetl.Double},
		{"4.9e-324", "4.9e-324", kinetl.Number},
		{"1e400", "1e+400", kinetl.Number},
		{"1e-400", "1e-400", kinetl.Number},
		{"0.1000000000000000000001", "0.1000000000000000000001", kinetl.Number},
		{"12345678901234567.5", "1.23456789012345675e+16", kinetl.Number},
		{"1e999999999", "1e+999999999", kinetl.Number},
		{"1e-999999999999999999", "1e-999999999999999999", kinetl.Number},
	} {
		class, canonical := kinetl.ClassifyNumber([]byte(c.literal))
		if class != c.class || string(canonical) != c.canonical {
			t.Errorf("%s: %s %s, want %s %s", c.literal, class, canonical, c.class, c.canonical)
		}
	}
	if class, _ := kinetl.ClassifyNumber([]byte("1e1000000000000000000")); class != kinetl.Unset {
		t.Errorf("an exponent of 19 digits has class %s", class)
	}
}

// literals draws JSON numbers, those at the classes' edges more often than chance would.
func literals() *rapid.Generator[string] {
	edges := []string{"0", "-0", "9007199254740992", "9007199254740993", "-9007199254740992", "-9007199254740993",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		strings.Repeat("9", 38), "1" + strings.Repeat("0", 38), "0.1", "1e22", "1e23", "5e-324", "2.5", "1e16", "123456789012345.6"}
	return rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom(edges).Draw(t, "edge")
		case 1:
			return strconv.FormatInt(rapid.Int64().Draw(t, "int"), 10)
		case 2:
			f := rapid.Float64().Draw(t, "double")
			if math.IsNaN(f) || math.IsInf(f, 0) {
				f = 1.5
			}
			format := rapid.SampledFrom([]string{"e", "f"}).Draw(t, "format")
			return strconv.FormatFloat(f, format[0], -1, 64)
		}
		literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,30})?`).Draw(t, "literal")
		if rapid.Bool().Draw(t, "scientific") {
			literal += fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"e", "E", "e+", "e-", "e-0"}).Draw(t, "e"), rapid.IntRange(0, 400).Draw(t, "exponent"))
		}
		return literal
	})
}

func exactly(t interface{ Fatalf(string, ...any) }, literal string) *big.Rat {
	r, ok := new(big.Rat).SetString(literal)
	if !ok {
		t.Fatalf("math/big does not read %q", literal)
	}
	return r
}

// classByValue is ClassifyNumber's promise in the words of math/big.
func classByValue(v *big.Rat, literal string) kinetl.Class {
	abs := new(big.Int).Abs(v.Num())
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(38), nil)
	switch {
	case v.Sign() == 0 && literal[0] == '-':
		return kinetl.Double
	case v.IsInt() && abs.Cmp(big.NewInt(1<<53)) <= 0:
		return kinetl.Int53
	case v.IsInt() && v.Num().IsInt64():
		return kinetl.Int64
	case v.IsInt() && abs.Cmp(limit) < 0:
		return kinetl.Decimal
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return kinetl.Number
	}
	if shortest, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64)); shortest.Cmp(v) == 0 {
		return kinetl.Double
	}
	return kinetl.Number
}

func TestClassifyNumberAgreesWithMathBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		literal := literals().Draw(t, "number")
		class, canonical := kinetl.ClassifyNumber([]byte(literal))
		value := exactly(t, literal)
		if want := classByValue(value, literal); class != want {
			t.Fatalf("%s is %s, want %s", literal, class, want)
		}
		if exactly(t, string(canonical)).Cmp(value) != 0 || !json.Valid(canonical) {
			t.Fatalf("%s became %s", literal, canonical)
		}
		if class == kinetl.Double {
			f, _ := strconv.ParseFloat(literal, 64)
			if got := kinetl.FormatDouble(f); got != string(canonical) {
				t.Fatalf("%s as a double prints %s, its canonical text is %s", literal, got, canonical)
			}
		}
	})
}

func TestSpellingDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		literal := literals().Draw(t, "number")
		class, canonical := kinetl.ClassifyNumber([]byte(literal))
		mantissa, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
		e, _ := strconv.Atoi(exponent)
		whole, fraction, _ := strings.Cut(mantissa, ".")
		move := rapid.IntRange(0, 60).Draw(t, "zeros")
		again := fmt.Sprintf("%s.%s%se%d", whole, fraction, strings.Repeat("0", move), e)
		if !strings.HasPrefix(strings.TrimPrefix(whole, "-"), "0") {
			again = fmt.Sprintf("%s%s%sE%+d", whole, fraction, strings.Repeat("0", move), e-len(fraction)-move)
		} else if move == 0 && fraction == "" {
			again = literal
		}
		if c, text := kinetl.ClassifyNumber([]byte(again)); c != class || string(text) != string(canonical) {
			t.Fatalf("%s is %s %s, but %s is %s %s", literal, class, canonical, again, c, text)
		}
	})
}

// Every text that a double column shows after widening names the same double.
func TestFormatDoubleRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return
		}
		text := kinetl.FormatDouble(f)
		if back, err := strconv.ParseFloat(text, 64); err != nil || math.Float64bits(back) != math.Float64bits(f) {
			t.Fatalf("%v prints %s, which reads %v", f, text, back)
		}
	})
	for f, want := range map[float64]string{
		1e15: "1000000000000000", 9007199254740992: "9007199254740992", 1e16: "1e+16", 1.5e300: "1.5e+300",
		-0.0001: "-0.0001", 0.00001234: "1.234e-05", math.Inf(-1): "-inf", math.Copysign(0, -1): "-0", 100: "100",
	} {
		if got := kinetl.FormatDouble(f); got != want {
			t.Errorf("%v prints %s, want %s", f, got, want)
		}
	}
}

func TestQuoteJSON(t *testing.T) {
	got := string(kinetl.QuoteJSON([]byte("x"), "\"\\/\b\f\n\r\t\x00\x1f\x7f<\u2028\U0001F600"))
	if want := `x"\"\\/\b\f\n\r\t\u0000\u001F` + "\x7f<\u2028\U0001F600\""; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		var back string
		if err := json.Unmarshal(kinetl.QuoteJSON(nil, s), &back); err != nil || back != s {
			t.Fatalf("%q came back as %q: %v", s, back, err)
		}
	})
}

// FuzzClassifyNumber: whatever the literal, the canonical text has its value, is
// canonical itself and is not much longer.
func FuzzClassifyNumber(f *testing.F) {
	for _, s := range []string{"0", "-0.0", "1e3", "123.4500", "1e999999999", "1e-999999999999999999999", "12345678901234567890123456789012345678901", "0.1000000000000000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		if !json.Valid([]byte(literal)) || strings.Trim(literal, "0123456789.eE+-") != "" || literal == "" {
			return
		}
		class, canonical := kinetl.ClassifyNumber([]byte(literal))
		if class == kinetl.Unset {
			return
		}
		if again, text := kinetl.ClassifyNumber(canonical); again != class || string(text) != string(canonical) {
			t.Fatalf("%s: %s %s, and that is %s %s", literal, class, canonical, again, text)
		}
		if len(canonical) > len(literal)+40 {
			t.Fatalf("%d bytes became %d", len(literal), len(canonical))
		}
		_, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
		if e, _ := strconv.Atoi(exponent); len(exponent) > 5 || e > 5000 || e < -5000 {
			return // math/big would write all the zeros
		}
		if exactly(t, literal).Cmp(exactly(t, string(canonical))) != 0 {
			t.Fatalf("%s became %s", literal, canonical)
		}
	})
}
