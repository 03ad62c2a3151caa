//go:build !invariants

package wire

const invariants = false
