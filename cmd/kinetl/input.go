package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// input is one record of a file: its place for messages, and its bytes or their
// number where they are more than the limit.
type input struct {
	place string // file:line, or file: element n
	data  []byte
	size  int
}

// inputs gives the records of a file one after the other, and io.EOF at its end.
type inputs interface{ next() (input, error) }

// lines are the lines of a file, without LF or CR LF. It keeps no more than limit
// bytes of a line.
type lines struct {
	file  string
	in    *bufio.Reader
	limit int
	n     int
}

func (l *lines) next() (input, error) {
	var line []byte
	size := 0
	for {
		chunk, err := l.in.ReadSlice('\n')
		size += len(chunk)
		if size <= l.limit+len("\r\n") {
			line = append(line, chunk...)
		} else {
			line = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && size == 0:
			return input{}, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return input{}, fmt.Errorf("read %s: %w", l.file, err)
		}
		break
	}
	l.n++
	in := input{place: fmt.Sprintf("%s:%d", l.file, l.n), size: size}
	if line == nil {
		return in, nil
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	in.data = bytes.TrimSuffix(line, []byte("\r"))
	in.size = len(in.data)
	return in, nil
}

// elements are the elements of a JSON array, each on one line.
type elements struct {
	file string
	in   *json.Decoder
	n    int
}

func (e *elements) next() (input, error) {
	if e.n == 0 {
		if t, err := e.in.Token(); err != nil || t != json.Delim('[') {
			return input{}, fmt.Errorf("%s: not a JSON array", e.file)
		}
	}
	e.n++
	place := fmt.Sprintf("%s: element %d", e.file, e.n)
	if !e.in.More() {
		if _, err := e.in.Token(); err != nil {
			return input{}, fmt.Errorf("%s: the array does not end: %w", place, unended(err))
		}
		if _, err := e.in.Token(); !errors.Is(err, io.EOF) {
			return input{}, fmt.Errorf("%s: there is something behind the array", e.file)
		}
		return input{}, io.EOF
	}
	var raw json.RawMessage
	if err := e.in.Decode(&raw); err != nil {
		return input{}, fmt.Errorf("%s: %w", place, unended(err))
	}
	var data bytes.Buffer
	if err := json.Compact(&data, raw); err != nil {
		return input{}, fmt.Errorf("%s: %w", place, err)
	}
	return input{place: place, data: data.Bytes(), size: data.Len()}, nil
}

// unended keeps the end of a file inside an array from being taken for its end.
func unended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

const maxKey = 256 // characters of a partition key. Source: PutRecordsRequestEntry

// partitionKey is the record's value of a top-level field as text. A record without
// such a value, or all records if no field is named, are spread by their own hash.
func partitionKey(data []byte, field string) (key string, own bool, err error) {
	if field != "" {
		key = fieldText(data, field)
	}
	if key == "" {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:8]), false, nil
	}
	if n := utf8.RuneCountInString(key); n > maxKey {
		return "", true, fmt.Errorf("the partition key in field %s has %d characters, more than %d", field, n, maxKey)
	}
	return key, true, nil
}

// fieldText is a field's string, or a number or boolean as it is written; nothing
// for anything else.
func fieldText(data []byte, field string) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return ""
	}
	value := fields[field]
	if len(value) == 0 {
		return ""
	}
	switch value[0] {
	case '"':
		var text string
		if json.Unmarshal(value, &text) != nil {
			return ""
		}
		return text
	case 'n', '{', '[':
		return ""
	}
	return string(value)
}
