package config

import "strings"

// nearest is the word that a reader most probably meant by got, or "".
func nearest(got string, words []string) string {
	best, bestDistance := "", len(got)/3+1
	for _, w := range words {
		d := distance(plain(got), plain(w))
		if d < bestDistance && d < len(w) {
			best, bestDistance = w, d
		}
	}
	return best
}

// plain takes out what people vary when they remember a key: start_position,
// StartPosition and startPosition are one.
func plain(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the edits between two words: a character added, removed or
// replaced, or two neighbours swapped. Words longer than any key are not compared.
func distance(a, b string) int {
	const longest = 128
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var two, one, row []int
	one = make([]int, len(b)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row = make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one = one, row
	}
	return one[len(b)]
}

// didYouMean turns the nearest word into a suggestion; without one it lists them.
func didYouMean(got string, words []string) string {
	if w := nearest(got, words); w != "" {
		return `did you mean "` + w + `"?`
	}
	switch len(words) {
	case 0:
		return ""
	case 1:
		return "the only one known is " + words[0]
	}
	return "known are " + strings.Join(words, ", ")
}
