package kinesistest

import "time"

// The limits of a shard: docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html
// and API_GetRecords.html.
const (
	maxReadsPerSecond  = 5
	readBytesPerSecond = 2 << 20
	maxPageBytes       = 10 << 20
	maxPageRecords     = 10000

	writeRecordsPerSecond = 1000
	writeBytesPerSecond   = 1 << 20
	maxPutRecords         = 500
	maxPutBytes           = 10 << 20
	defaultRecordBytes    = 1 << 20
	maxRecordBytes        = 10 << 20
	maxPartitionKey       = 256
)

// readLimit lets five calls into any second, and bytes into a window that a large
// page stretches: after 10 MiB, five seconds pass before the next call.
type readLimit struct {
	calls [maxReadsPerSecond]time.Time // the last five, a ring
	at    int
	start time.Time
	used  int
}

func (l *readLimit) allow(now time.Time) bool {
	if oldest := l.calls[l.at]; !oldest.IsZero() && now.Sub(oldest) < time.Second {
		return false
	}
	if now.Sub(l.start) < stretch(l.used, readBytesPerSecond) && l.used >= readBytesPerSecond {
		return false
	}
	l.calls[l.at] = now
	l.at = (l.at + 1) % maxReadsPerSecond
	return true
}

func (l *readLimit) charge(now time.Time, bytes int) {
	if now.Sub(l.start) >= stretch(l.used, readBytesPerSecond) {
		l.start, l.used = now, 0
	}
	l.used += bytes
}

// writeLimit lets records and bytes into a window of a second, or longer after a
// record that is larger than a second's share.
type writeLimit struct {
	start         time.Time
	records, used int
}

func (l *writeLimit) allow(now time.Time, bytes int) bool {
	if now.Sub(l.start) >= stretch(l.used, writeBytesPerSecond) {
		*l = writeLimit{start: now}
	}
	if l.records == writeRecordsPerSecond || l.used > 0 && l.used+bytes > writeBytesPerSecond {
		return false
	}
	l.records++
	l.used += bytes
	return true
}

// stretch is how long a window lasts into which so many bytes went: at least a second.
func stretch(bytes, perSecond int) time.Duration {
	return max(time.Second, time.Duration(float64(bytes)/float64(perSecond)*float64(time.Second)))
}
