package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"time"
)

// moment is a date, a time of day or both, as read from text.
type moment struct {
	days   int64 // since 2000-01-01
	micros int64 // of the day, in the zone
	zoned  bool  // the text says which zone
	offset int64 // east of UTC, in microseconds
}

const (
	second = int64(time.Second / time.Microsecond)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// parseMoment reads text in ISO 8601: 2026-01-02 for a date, 03:04:05.678901 for a
// time, the two with T or a blank between for the rest, and there Z, +02, +0200 or
// +02:00 behind. False: it is none, or has more than microseconds, and PostgreSQL
// would guess, or round.
func parseMoment(kind kind, text []byte) (m moment, ok bool) {
	if kind != asTime {
		if text, ok = m.date(text); !ok || kind == asDate {
			return m, ok && len(text) == 0
		}
		if len(text) == 0 || text[0]|0x20 != 't' && text[0] != ' ' {
			return m, false
		}
		text = text[1:]
	}
	if text, ok = m.clock(text); !ok || kind == asTime {
		return m, ok && len(text) == 0
	}
	if len(text) > 0 {
		if m.offset, ok = zone(text); !ok {
			return m, false
		}
		m.zoned = true
	}
	// A timestamp without time zone takes an instant only if it is written in UTC.
	return m, kind != asTimestamp || m.offset == 0
}

// date reads YYYY-MM-DD and returns what follows.
func (m *moment) date(text []byte) (rest []byte, ok bool) {
	if len(text) < 10 || text[4] != '-' || text[7] != '-' {
		return nil, false
	}
	year, ok1 := digits(text[:4])
	month, ok2 := digits(text[5:7])
	of, ok3 := digits(text[8:10])
	if !ok1 || !ok2 || !ok3 || year == 0 {
		return nil, false
	}
	t := time.Date(int(year), time.Month(month), int(of), 0, 0, 0, 0, time.UTC)
	m.days = (t.UnixMicro() - epoch) / day
	return text[10:], t.Month() == time.Month(month) && t.Day() == int(of)
}

// clock reads HH:MM, HH:MM:SS or HH:MM:SS.ffffff and returns what follows. Decimals
// beyond the sixth must be zeros.
func (m *moment) clock(text []byte) (rest []byte, ok bool) {
	if len(text) < 5 || text[2] != ':' {
		return nil, false
	}
	h, ok1 := digits(text[:2])
	min, ok2 := digits(text[3:5])
	m.micros = h*hour + min*minute
	if !ok1 || !ok2 || h > 23 || min > 59 {
		return nil, false
	}
	if text = text[5:]; len(text) < 3 || text[0] != ':' {
		return text, true
	}
	s, ok := digits(text[1:3])
	if !ok || s > 59 {
		return nil, false
	}
	m.micros += s * second
	if text = text[3:]; len(text) == 0 || text[0] != '.' {
		return text, true
	}
	n, unit := 1, second/10
	for ; n < len(text) && text[n] >= '0' && text[n] <= '9'; n++ {
		if unit == 0 && text[n] != '0' {
			return nil, false
		}
		m.micros += int64(text[n]-'0') * unit
		unit /= 10
	}
	return text[n:], n > 1
}

// zone reads an offset from UTC.
func zone(text []byte) (offset int64, ok bool) {
	if len(text) == 1 && text[0]|0x20 == 'z' {
		return 0, true
	}
	sign := int64(1)
	switch text[0] {
	case '-':
		sign = -1
	case '+':
	default:
		return 0, false
	}
	text = text[1:]
	if len(text) == 5 && text[2] == ':' {
		text = append(append(make([]byte, 0, 4), text[:2]...), text[3:]...)
	}
	if len(text) != 2 && len(text) != 4 {
		return 0, false
	}
	h, ok := digits(text[:2])
	min := int64(0)
	if ok && len(text) == 4 {
		min, ok = digits(text[2:])
	}
	return sign * (h*hour + min*minute), ok && h <= 15 && min <= 59
}

// fits reports whether a type with that many decimals of a second keeps the moment.
func (m moment) fits(kind kind, typmod int32) bool {
	if kind == asDate || typmod < 0 {
		return true
	}
	unit := second
	for range typmod {
		unit /= 10
	}
	return unit <= 1 || m.micros%unit == 0
}

// digits reads a number of digits only.
func digits(text []byte) (v int64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = 10*v + int64(c-'0')
	}
	return v, true
}

// appendMoment appends text that parseMoment reads, in the type's binary format.
func appendMoment(dst []byte, kind kind, text []byte) []byte {
	m, _ := parseMoment(kind, text)
	switch kind {
	case asDate:
		return binary.BigEndian.AppendUint32(dst, uint32(m.days))
	case asTime:
		return binary.BigEndian.AppendUint64(dst, uint64(m.micros))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(m.days*day+m.micros-m.offset))
}

// parseUUID reads 8-4-4-4-12 hex digits.
func parseUUID(text []byte) (id [16]byte, ok bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, false
	}
	var plain [32]byte
	n := 0
	for i, c := range text {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			continue
		}
		plain[n] = c
		n++
	}
	_, err := hex.Decode(id[:], plain[:])
	return id, err == nil
}
