package httpfence

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold"
)

// markRecord is the content of a mark file.
type markRecord struct {
	Cluster     string `json:"cluster"`
	Resource    string `json:"resource"`
	Slot        uint32 `json:"slot"`
	Incarnation string `json:"incarnation,omitempty"`
	Number      uint64 `json:"number,string"`
	// Checksum of the record without it, in hexadecimal.
	Checksum string `json:"checksum,omitempty"`
}

func (r markRecord) sum() string {
	r.Checksum = ""
	encoded, _ := json.Marshal(r)
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(encoded))
}

// markStore replaces the mark file as a whole, and keeps others from using it.
type markStore struct {
	path string
	lock *os.File
}

func createMarkFile(path string, record markRecord) error {
	if _, err := os.Lstat(path); err == nil {
		return leasehold.NewError(leasehold.CodeConflict, path+" exists", "Open the fence; arm it only once.", nil)
	}
	store, err := lockMarkFile(path)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.save(record)
}

func openMarkFile(path string) (*markStore, markRecord, error) {
	var record markRecord
	store, err := lockMarkFile(path)
	if err != nil {
		return nil, record, err
	}
	lost := func(reason, message string, cause error) (*markStore, markRecord, error) {
		_ = store.Close()
		problem := leasehold.NewError(leasehold.CodeStorageFailed, message, "If nothing was written yet, arm the fence.", cause)
		problem.Reason = reason
		return nil, record, problem
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lost("missing", path+" does not exist", err)
	case err != nil:
		return lost("unreadable", err.Error(), err)
	}
	if err := json.Unmarshal(text, &record); err != nil || record.Checksum != record.sum() {
		return lost("unreadable", path+" is damaged", err)
	}
	return store, record, nil
}

func lockMarkFile(path string) (*markStore, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, leasehold.NewError(leasehold.CodeStorageFailed, err.Error(), "Check the directory of the mark file.", err)
	}
	if err := lockFile(lock); err != nil {
		_ = lock.Close()
		return nil, leasehold.NewError(leasehold.CodeConflict, "another process uses "+path, "Stop it, or use its address.", err)
	}
	return &markStore{path: path, lock: lock}, nil
}

// Close lets another process use the file.
func (s *markStore) Close() error { return s.lock.Close() }

// save makes a record durable: a new file is synced and renamed over the old one, then the directory is synced.
func (s *markStore) save(record markRecord) error {
	record.Checksum = record.sum()
	encoded, err := json.Marshal(record)
	if err != nil {
		return err
	}
	fresh := s.path + ".new"
	file, err := os.OpenFile(fresh, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(encoded, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(fresh, s.path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}
