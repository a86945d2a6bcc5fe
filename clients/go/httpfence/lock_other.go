//go:build !unix

package httpfence

import (
	"errors"
	"os"
)

// lockFile fails: without a lock two processes could admit by one file.
func lockFile(*os.File) error {
	return errors.New("this system has no file locks that this package uses; run the fence on a unix system")
}
