//go:build !invariants

package kinetl

const invariants = false
