package kinesistest

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// The digits are those of the number, and reading them gives the number back.
func TestSequenceText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		q := makeSequence(r.Int64N(1<<36), r.Uint32(), r.Uint64N(lastCounter+1), r.Int64N(1<<36))
		v := new(big.Int).SetUint64(q.hi)
		v.Lsh(v, 64).Or(v, new(big.Int).SetUint64(q.mid))
		v.Lsh(v, 64).Or(v, new(big.Int).SetUint64(q.lo))
		if got, want := q.String(), v.String(); got != want || len(got) != sequenceDigits {
			t.Fatalf("text is %s, the number is %s", got, want)
		}
		if back, ok := parseSequence(q.String()); !ok || back != q {
			t.Fatalf("%s reads back as %v, %t", q, back, ok)
		}
		if v.BitLen() != 186 {
			t.Fatalf("%s has %d bits", q, v.BitLen())
		}
	}
}

// Numbers keep what they were made of, and order by shard creation, counter, time.
func TestSequenceParts(t *testing.T) {
	q := makeSequence(1700000000, 19, 1<<50+7, 1700000123)
	if q.created() != 1700000000 || q.index() != 19 || q.counter() != 1<<50+7 || q.time().Unix() != 1700000123 {
		t.Fatalf("%v has parts %d %d %d %v", q, q.created(), q.index(), q.counter(), q.time())
	}
	ordered := []sequence{
		makeSequence(100, 3, lastCounter, 900),
		makeSequence(101, 0, 0, 101),
		makeSequence(101, 0, 1, 50),
		makeSequence(101, 0, 2, 50),
		makeSequence(101, 0, 2, 51),
	}
	for i := 1; i < len(ordered); i++ {
		a, b := ordered[i-1], ordered[i]
		if !a.less(b) || b.less(a) || a.String() >= b.String() {
			t.Errorf("%s does not come before %s", a, b)
		}
	}
}

func FuzzParseSequence(f *testing.F) {
	for _, s := range []string{"", "0", "49590338271490256608559692538361571095921575989136588898", makeSequence(1, 2, 3, 4).String(), "99999999999999999999999999999999999999999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if q, ok := parseSequence(s); ok && q.String() != s {
			t.Fatalf("%q reads as %s", s, q)
		}
	})
}

func FuzzParseHashKey(f *testing.F) {
	for _, s := range []string{"", "0", "00", "-1", "340282366920938463463374607431768211455", "340282366920938463463374607431768211456"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if k, ok := parseHashKey(s); ok && k.String() != s {
			t.Fatalf("%q reads as %s", s, k)
		}
	})
}
