// Package lease decides which worker reads which shard.
//
// A lease is a row in a table that all workers of an application share. Its counter
// changes with every write but a signal, and every such write is conditional on the
// owner and counter that the writer saw. A worker renews its rows three times within
// the failover time; a row that has not changed for the failover time, on the
// observer's own clock, belongs to nobody. Clocks of different hosts are never
// compared.
//
//	free --take--> owned --renew--> owned --release--> free
//	                 |  \--checkpoint SHARD_END--> ended --delete--> (gone)
//	                 \--unchanged for the failover time, or stolen--> owned by another
//
// The owner trusts its lease until the failover time after the start of its last
// successful write: others count from when the row changed, which is no earlier. A
// worker that is stopped for longer than that may still believe in its lease when it
// wakes up. Leases do not protect against that, and need not: the table that rows go
// to admits only parts that extend its watermark.
//
// Coordinator is a pure function of what was seen; Store keeps the rows. Where they are
// kept as the Kinesis Client Library (KCL) keeps them, its workers may be in the fleet:
// the Coordinator then shares leases as they do, and Watch tells whether their third
// version is at work, beside which nobody else may be.
package lease
