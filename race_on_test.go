//go:build race

package kinetl_test

const raceDetector = true
