package kinesis

import (
	"bytes"
	"crypto/md5"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kinetl/kinetl"
)

// aggregateMagic opens a record into which the Kinesis Producer Library packed
// several. What follows is a protobuf message and its MD5.
// Source: aggregation-format.md in awslabs/amazon-kinesis-producer.
var aggregateMagic = []byte{0xf3, 0x89, 0x9a, 0xc2}

// unpack appends the user records of one stream record to dst: the records of an
// aggregate with their index as sub-sequence number, or the record itself. An
// aggregate that is malformed anywhere goes on whole as a plain record, whose fate
// is then the decoder's: emitting the part before the fault would drop the rest.
// Records keep their place whatever their hash key says: a record that a producer
// sent twice around a reshard is two records of the stream.
func unpack(dst []kinetl.Record, r kinetl.Record) []kinetl.Record {
	if !isAggregate(r) {
		return append(dst, r)
	}
	message := r.Data[len(aggregateMagic) : len(r.Data)-md5.Size]
	if md5.Sum(message) != [md5.Size]byte(r.Data[len(r.Data)-md5.Size:]) {
		return append(dst, r)
	}
	before := len(dst)
	dst, ok := unpackMessage(dst, r, message)
	if !ok || len(dst) == before {
		return append(dst[:before], r)
	}
	return dst
}

// isAggregate reports whether a record begins like an aggregate and is long enough.
func isAggregate(r kinetl.Record) bool {
	return bytes.HasPrefix(r.Data, aggregateMagic) && len(r.Data) >= len(aggregateMagic)+md5.Size
}

// unpackMessage reads AggregatedRecord: partition_key_table (1, repeated string),
// explicit_hash_key_table (2), records (3).
func unpackMessage(dst []kinetl.Record, outer kinetl.Record, message []byte) ([]kinetl.Record, bool) {
	var keys []string
	first := len(dst)
	var indices []uint64
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return dst, false
		}
		message = message[n:]
		if typ != protowire.BytesType || num < 1 || num > 3 {
			if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
				return dst, false
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return dst, false
		}
		message = message[n:]
		switch num {
		case 1:
			keys = append(keys, string(value))
		case 3:
			index, data, ok := unpackRecord(value)
			if !ok {
				return dst, false
			}
			r := outer
			r.Sub, r.Data = uint64(len(indices)), data
			dst, indices = append(dst, r), append(indices, index)
		}
	}
	for i, index := range indices {
		if index >= uint64(len(keys)) {
			return dst, false
		}
		dst[first+i].PartitionKey = keys[index]
	}
	return dst, true
}

// unpackRecord reads Record: partition_key_index (1, required), explicit_hash_key_index
// (2), data (3, required), tags (4).
func unpackRecord(message []byte) (key uint64, data []byte, ok bool) {
	hasKey, hasData := false, false
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, nil, false
		}
		message = message[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			key, n = protowire.ConsumeVarint(message)
			hasKey = true
		case num == 3 && typ == protowire.BytesType:
			data, n = protowire.ConsumeBytes(message)
			hasData = true
		default:
			n = protowire.ConsumeFieldValue(num, typ, message)
		}
		if n < 0 {
			return 0, nil, false
		}
		message = message[n:]
	}
	return key, data, hasKey && hasData
}

// Aggregate packs user records as the Kinesis Producer Library does. Producers of
// demos and tests use it.
func Aggregate(records []AggregateRecord) []byte {
	var message []byte
	index := map[string]uint64{}
	for _, r := range records {
		if _, ok := index[r.PartitionKey]; !ok {
			index[r.PartitionKey] = uint64(len(index))
			message = protowire.AppendTag(message, 1, protowire.BytesType)
			message = protowire.AppendString(message, r.PartitionKey)
		}
	}
	for _, r := range records {
		var record []byte
		record = protowire.AppendTag(record, 1, protowire.VarintType)
		record = protowire.AppendVarint(record, index[r.PartitionKey])
		record = protowire.AppendTag(record, 3, protowire.BytesType)
		record = protowire.AppendBytes(record, r.Data)
		message = protowire.AppendTag(message, 3, protowire.BytesType)
		message = protowire.AppendBytes(message, record)
	}
	sum := md5.Sum(message)
	return append(append(append([]byte(nil), aggregateMagic...), message...), sum[:]...)
}

// AggregateRecord is one user record of an aggregate.
type AggregateRecord struct {
	PartitionKey string
	Data         []byte
}
