// Package kinetl moves data between Amazon Kinesis Data Streams and tables. It
// holds the vocabulary and the engine; what speaks to AWS, to a database or to a
// file of documents lives in packages below it.
//
// A stream consists of shards. A record's place in its shard is a [Position]. The
// rows of one shard for one table over a range of positions are a [Part], the unit
// of commitment. A table's watermark is the position through which it durably
// holds a shard; it is stored in the same atomic step as the rows, so a record is
// neither lost nor repeated, whichever process dies when.
//
// The life of one record, in seven files: kinesis/reader.go, kinesis/aggregate.go,
// consumer.go, load.go, codec/json.go, commit.go, dest/duckdb/duckdb.go.
//
// The rules named R1 to R32 in comments and tests are stated in docs/rules.md.
package kinetl
