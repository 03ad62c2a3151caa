// Package kinesistest is Amazon Kinesis Data Streams in one process: an HTTP
// server that tests, `kinetl demo` and `kinetl emulator` read from and write to.
//
// It answers what the service's API reference says the service answers, each
// action in a file of its own: sequence numbers in the service's layout, shards
// that split and merge, retention, iterators that expire, the limits per shard, and
// both wire formats (JSON 1.1, CBOR 1.1). It checks no signatures and keeps
// everything in memory.
//
// A test may connect over a socket (Start, URL) or without one (New, Transport),
// may own the clock (Options.Now), may make calls fail in every way that the
// service fails (Fault), and may look at what was called (Calls).
package kinesistest
