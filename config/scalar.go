package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// errEmpty refuses an empty text, which would read as "the default".
var errEmpty = errors.New("is empty")

// setScalar reads a text into v, which is of the field's type, and checks it by the
// field's tags. Texts come from documents, defaults, the environment and secrets.
// No error shows the text of a secret.
func setScalar(v reflect.Value, f field, text string) error {
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		if err := setScalar(p.Elem(), f, text); err != nil {
			return err
		}
		v.Set(p)
		return nil
	}
	if text == "" {
		return errEmpty
	}
	switch kind := kindOf(v.Type()); kind {
	case kindSecret:
		v.Set(reflect.ValueOf(NewSecret(text)))
		return nil
	case kindText:
		if err := checkText(f, text); err != nil {
			return err
		}
		v.SetString(text)
		return nil
	case kindBool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%s is not %s", quote(text), kind.noun())
		}
		v.SetBool(text == "true")
		return nil
	default:
		n, err := number(kind, text)
		if err != nil {
			return fmt.Errorf("%s is not %s", quote(text), kind.noun())
		}
		if err := checkBounds(f, kind, text, n); err != nil {
			return err
		}
		if kind == kindFloat {
			v.SetFloat(n.float)
		} else {
			v.SetInt(n.int)
		}
		return nil
	}
}

// checkText checks a text by the field's words and format.
func checkText(f field, text string) error {
	if len(f.enum) > 0 && !slices.Contains(f.enum, text) {
		return &wordError{text, f.enum}
	}
	if f.is != "" {
		return checkFormat(f.is, text)
	}
	return nil
}

// wordError refuses a word that is not one of those allowed.
type wordError struct {
	got   string
	words []string
}

func (e *wordError) Error() string { return quote(e.got) + " is not allowed" }

// parsed is a number of any kind: nanoseconds, bytes, a count or a fraction.
type parsed struct {
	int   int64
	float float64
}

func number(kind fieldKind, text string) (parsed, error) {
	switch kind {
	case kindFloat:
		f, err := strconv.ParseFloat(text, 64)
		if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
			err = strconv.ErrRange
		}
		return parsed{float: f}, err
	case kindDuration:
		d, err := time.ParseDuration(text)
		return parsed{int64(d), d.Seconds()}, err
	case kindSize:
		s, err := ParseSize(text)
		return parsed{int64(s), float64(s)}, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return parsed{n, float64(n)}, err
}

// checkBounds refuses numbers that are not above zero, which would read as "the
// default", and those beyond the field's bounds.
func checkBounds(f field, kind fieldKind, text string, n parsed) error {
	if n.float <= 0 {
		return fmt.Errorf("%s is not above zero", text)
	}
	if f.min != "" {
		if low, err := number(kind, f.min); err == nil && n.float < low.float {
			return fmt.Errorf("%s is below the least, %s", text, f.min)
		}
	}
	if f.max != "" {
		if high, err := number(kind, f.max); err == nil && n.float > high.float {
			return fmt.Errorf("%s is above the most, %s", text, f.max)
		}
	}
	return nil
}
