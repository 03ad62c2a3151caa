package kinetl

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// buffers is the memory of columns. A part's buffers serve a later part once the last
// reference to its rows is released: fresh memory costs more than what is written to
// it, since it is cleared, and faulted in page by page. What lies unused is left to
// the garbage collector after a while.
//
// Sizes come in four steps to a doubling, so that a buffer fits the parts that come
// after. Small ones are not kept: keeping costs as much as making.
var buffers = &bufferPool{}

type bufferPool struct {
	sizes [4 * (31 - smallBits)]sync.Pool
}

// smallBits: buffers below 4 KiB are not kept.
const smallBits = 12

// sizeOf is the bytes of a buffer that is to hold n, and its index among the sizes;
// negative: none.
func sizeOf(n int) (size, index int) {
	if n <= 1<<smallBits {
		return (n + 7) &^ 7, -1
	}
	octave := bits.Len(uint(n-1)) - 1 // 2^octave < n <= 2^(octave+1)
	step := 1 << (octave - 2)
	quarter := (n - 1 - 1<<octave) / step
	if index = 4*(octave-smallBits) + quarter; index >= len(buffers.sizes) {
		return (n + 7) &^ 7, -1
	}
	return 1<<octave + (quarter+1)*step, index
}

// get is a buffer of n bytes and whatever room comes with it, aligned for words. Its
// content is not defined.
func (p *bufferPool) get(n int) []byte {
	size, index := sizeOf(n)
	if index >= 0 {
		if first, ok := p.sizes[index].Get().(*byte); ok {
			return unsafe.Slice(first, size)[:n]
		}
	}
	return arrow.Uint64Traits.CastToBytes(make([]uint64, size/8))[:n]
}

// put takes a buffer of get back, whole. Nobody may look at it any more.
func (p *bufferPool) put(b []byte) {
	b = b[:cap(b)]
	if invariants {
		for i := range b {
			b[i] = 0xdb
		}
	}
	if size, index := sizeOf(len(b)); index >= 0 && size == len(b) {
		p.sizes[index].Put(&b[0]) // a pointer fits an interface without a box
	}
}

// buffer hands a buffer of get over to Arrow, which gives it back by Free.
func (p *bufferPool) buffer(b []byte) *memory.Buffer { return memory.NewBufferWithAllocator(b, p) }

// Allocate, Reallocate and Free implement memory.Allocator.
func (p *bufferPool) Allocate(n int) []byte {
	b := p.get(n)
	clear(b)
	return b
}

func (p *bufferPool) Reallocate(n int, b []byte) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	larger := p.Allocate(n)
	copy(larger, b)
	p.put(b)
	return larger
}

func (p *bufferPool) Free(b []byte) { p.put(b) }
