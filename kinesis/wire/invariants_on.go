//go:build invariants

package wire

// invariants makes pages unreadable once their life has ended.
const invariants = true
