package codec

import (
	"encoding/binary"

	"github.com/kinetl/kinetl"
)

// plan knows the keys that payloads had and which one comes next, so that a usual
// key costs one comparison: neither hashing nor unescaping.
type plan struct {
	row   *kinetl.Builder
	epoch uint64 // of row; the columns of the steps are of it
	steps []step // the first stands for the beginning of an object
	index map[string]int
	at    int // the step of the key before
}

// step is a key.
type step struct {
	key         string // as payloads have it: quoted, with the colon
	head, mask  uint64 // its first 8 bytes, or as many as it has
	col         int
	next, other int // the steps that came after it last
}

// begin prepares for an object.
func (p *plan) begin(row *kinetl.Builder) {
	if p.row != row || p.epoch != row.Epoch() {
		// The first step is no key: nothing has its head.
		*p = plan{row: row, epoch: row.Epoch(), steps: append(p.steps[:0], step{head: 1}), index: map[string]int{}}
	}
	p.at = 0
}

// match is the step of the key at the start of data, or nil for one that is not
// known or not written the usual way.
func (p *plan) match(data []byte) *step {
	before := &p.steps[p.at]
	if s := &p.steps[before.next]; s.starts(data) {
		p.at = before.next
		return s
	}
	if s := &p.steps[before.other]; s.starts(data) {
		p.at = before.other
		return s
	}
	return p.search(data)
}

func (s *step) starts(data []byte) bool {
	if len(data) < 8 || binary.LittleEndian.Uint64(data)&s.mask != s.head {
		return false
	}
	n := len(s.key)
	return n <= 8 || n <= len(data) && string(data[8:n]) == s.key[8:]
}

func (p *plan) search(data []byte) *step {
	if len(data) == 0 || data[0] != '"' {
		return nil
	}
	end, escaped := skipString(data, 1)
	if end < 0 || escaped || end+1 >= len(data) || data[end+1] != ':' {
		return nil
	}
	i, ok := p.index[string(data[1:end])]
	if !ok {
		return nil
	}
	p.follow(i)
	return &p.steps[i]
}

// follow notes that step i came next.
func (p *plan) follow(i int) {
	before := &p.steps[p.at]
	before.next, before.other = i, before.next
	p.at = i
}

// learn notes a key that has no escapes and that a field was just set by.
func (p *plan) learn(key []byte) {
	i, ok := p.index[string(key)]
	if !ok {
		col, ok := p.row.Find(key)
		if !ok {
			return
		}
		i = len(p.steps)
		s := step{key: `"` + string(key) + `":`, col: col}
		var head [8]byte
		copy(head[:], s.key)
		s.head = binary.LittleEndian.Uint64(head[:])
		s.mask = ^uint64(0) >> (64 - 8*min(len(s.key), 8))
		p.steps = append(p.steps, s)
		p.index[s.key[1:len(s.key)-2]] = i
	}
	p.follow(i)
}
