package duckdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	ddb "github.com/duckdb/duckdb-go/v2"
)

// Check looks whether New could open the file, without making or changing it, and
// says what it found. Errors: *LockedError.
func Check(path string) (string, error) {
	path, err := databasePath(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "will be made", Writable(filepath.Dir(path))
	}
	connector, err := ddb.NewConnector(path+"?access_mode=READ_ONLY", nil)
	if err != nil {
		return "", openError(path, err)
	}
	if err := connector.Close(); err != nil {
		return "", fmt.Errorf("close database %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("database can be read but not written: %w", err)
	}
	return "can be opened", f.Close()
}

// Writable reports whether a file can be made in a folder, by making an empty one
// and removing it.
func Writable(folder string) error {
	f, err := os.CreateTemp(folder, ".kinetl-check-*")
	if err != nil {
		return fmt.Errorf("folder %s can't be written: %w", folder, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
