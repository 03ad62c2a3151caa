package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// backUp writes items to a file, one on a line as the AWS CLI takes them, and returns
// when they are on the disk. The file appears with all of them or not at all. One that
// is there must hold the same items: it is never overwritten.
func backUp(path string, items []item) error {
	lines := make([][]byte, len(items))
	for i, it := range items {
		line, err := json.Marshal(plain(&types.AttributeValueMemberM{Value: it})["M"])
		if err != nil {
			return fmt.Errorf("back up to %s: %w", path, err)
		}
		lines[i] = append(line, '\n')
	}
	slices.SortFunc(lines, bytes.Compare)
	all := bytes.Join(lines, nil)
	err := keep(path, all)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		err = keep(path, all)
	}
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	return nil
}

func keep(path string, all []byte) error {
	have, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(have, all):
		return nil
	case err == nil:
		return fmt.Errorf("%s is there and holds something else: name another file", path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return writeNew(path, all)
}

func writeNew(path string, content []byte) (err error) {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, filepath.Base(path)+".part-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // refuses what Rename would overwrite
		return err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// plain is a value in DynamoDB's JSON.
func plain(v types.AttributeValue) map[string]any {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *types.AttributeValueMemberB:
		return map[string]any{"B": v.Value}
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *types.AttributeValueMemberNULL:
		return map[string]any{"NULL": v.Value}
	case *types.AttributeValueMemberSS:
		return map[string]any{"SS": slices.Sorted(slices.Values(v.Value))}
	case *types.AttributeValueMemberNS:
		return map[string]any{"NS": slices.Sorted(slices.Values(v.Value))}
	case *types.AttributeValueMemberBS:
		return map[string]any{"BS": v.Value}
	case *types.AttributeValueMemberL:
		list := make([]any, len(v.Value))
		for i, e := range v.Value {
			list[i] = plain(e)
		}
		return map[string]any{"L": list}
	case *types.AttributeValueMemberM:
		fields := make(map[string]any, len(v.Value))
		for name, e := range v.Value {
			fields[name] = plain(e)
		}
		return map[string]any{"M": fields}
	}
	return nil
}
