// Package lint holds the rules of layering, size and style that no linter knows,
// as tests: run them with go test ./internal/lint.
package lint
