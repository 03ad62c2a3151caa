// Package interop runs kinetl and the real Kinesis Client Library (KCL) on one stream
// and one lease table, to see that either goes on where the other stopped, and that both
// work side by side. It is all tests: `make interop` runs them, which needs Java and
// Maven, and writes RESULTS.md. kcl/ has the KCL worker.
package interop
