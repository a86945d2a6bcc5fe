package leasehold

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME: monotonic, and it includes suspend.
const clockBoottime = 7

type bootClock struct{}

// SystemClock returns the clock of this machine.
func SystemClock() Clock { return bootClock{} }

func (bootClock) Now() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		// Every kernel since 2.6.39 has this clock. Without a clock nothing may be believed.
		panic("leasehold: cannot read CLOCK_BOOTTIME: " + errno.Error())
	}
	return time.Duration(ts.Nano())
}
