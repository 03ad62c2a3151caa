package kinesistest

import (
	"fmt"
	"net/http"
)

// apiError is an answer that is not 2xx: docs.aws.amazon.com/kinesis/latest/APIReference/CommonErrors.html
// and the errors listed with each action.
type apiError struct {
	status  int
	code    string // __type
	message string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func refuse(code, format string, args ...any) error {
	return &apiError{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return refuse("InvalidArgumentException", format, args...)
}

func validation(format string, args ...any) error {
	return refuse("ValidationException", "1 validation error detected: "+format, args...)
}

// within checks a number against the bounds that the API model gives it.
func within(member string, v *int64, low, high, fallback int64) (int64, error) {
	switch {
	case v == nil:
		return fallback, nil
	case *v < low:
		return 0, validation("Value '%d' at '%s' failed to satisfy constraint: Member must have value greater than or equal to %d", *v, member, low)
	case *v > high:
		return 0, validation("Value '%d' at '%s' failed to satisfy constraint: Member must have value less than or equal to %d", *v, member, high)
	}
	return *v, nil
}

func required(member string) error {
	return validation("Value null at '%s' failed to satisfy constraint: Member must not be null", member)
}

// decimal checks the pattern of sequence numbers and hash keys: 0, or digits
// without a leading zero.
func decimal(member, text string, digits int) error {
	ok := text == "0" || len(text) >= 1 && len(text) <= digits && text[0] != '0'
	for i := range len(text) {
		ok = ok && '0' <= text[i] && text[i] <= '9'
	}
	if !ok {
		return validation("Value '%s' at '%s' failed to satisfy constraint: Member must satisfy regular expression pattern: 0|([1-9]\\d{0,%d})", text, member, digits-1)
	}
	return nil
}

func (s *Server) noStream(name string) error {
	return refuse("ResourceNotFoundException", "Stream %s under account %s not found.", name, s.opts.AccountID)
}

func (st *stream) noShard(id string) error {
	return refuse("ResourceNotFoundException", "Could not find shard %s in stream %s.", id, st.name)
}

func throttled(st *stream, sh *shard) error {
	return refuse("ProvisionedThroughputExceededException", "Rate exceeded for shard %s in stream %s.", sh.id(), st.name)
}
