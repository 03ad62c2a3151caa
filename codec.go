package kinetl

// Decoder turns payloads into rows. One goroutine uses it.
type Decoder interface {
	// Decode sets the cells of the builder's current row. The caller ends the row
	// when Decode returned nil and aborts it when it returned an error, so nothing
	// of a refused record is left behind. The error's text is the reason that the
	// dead letter carries.
	Decode(payload []byte, row *Builder) error
}
