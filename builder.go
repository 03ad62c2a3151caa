package kinetl

// Builder collects the rows of one part.
type Builder struct{}
