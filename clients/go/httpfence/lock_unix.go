//go:build unix

package httpfence

import (
	"os"
	"syscall"
)

// lockFile locks a file for this process, or fails at once.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
