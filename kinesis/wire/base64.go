package wire

import "encoding/base64"

// sextets maps a character to its six bits, shifted to its place among four; the
// top bit is set for what is no character of base64.
var sextets = makeSextets()

const notBase64 = 1 << 31

func makeSextets() (t [4][256]uint32) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for place := range t {
		for c := range t[place] {
			t[place][c] = notBase64
		}
		for v := range alphabet {
			t[place][alphabet[v]] = uint32(v) << (18 - 6*place)
		}
	}
	return t
}

// decodeBase64 decodes in place, and returns the decoded length. Three bytes are
// written where four were read before, so the two never meet. The standard decoder
// serves for the last group, with its padding, and for anything that is not plain:
// it knows of line breaks and of the faults.
func decodeBase64(text []byte) (n int, ok bool) {
	at := 0
	for ; at+8 <= len(text); at += 4 {
		in, out := text[at:at+4:at+4], text[n:n+3:n+3]
		v := sextets[0][in[0]] | sextets[1][in[1]] | sextets[2][in[2]] | sextets[3][in[3]]
		if v&notBase64 != 0 {
			break
		}
		out[0], out[1], out[2] = byte(v>>16), byte(v>>8), byte(v)
		n += 3
	}
	rest, err := base64.StdEncoding.Decode(text[n:], text[at:])
	return n + rest, err == nil
}
