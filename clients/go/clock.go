package leasehold

import "time"

// Clock measures time that includes suspend. Only differences between two readings count.
//
// The default is CLOCK_BOOTTIME on Linux. On other systems it is the larger of the monotonic clock, which may stop during suspend, and the
// wall clock since the start of the process; a wall clock that jumps forward suspends leases early, never late.
type Clock interface {
	// Now returns the time since a fixed moment. It never goes back.
	Now() time.Duration
}

// driftPercent is the assumed error of a clock's rate.
const driftPercent = 1

// shrink returns the part of d that has passed on no clock of another machine when it has passed here. A server counts whole milliseconds.
func shrink(d time.Duration) time.Duration {
	d -= time.Millisecond
	if d < 0 {
		return 0
	}
	return d / 100 * (100 - 2*driftPercent)
}

// stretch returns the time to wait here until d has passed on any other clock.
func stretch(d time.Duration) time.Duration {
	return (d+time.Millisecond)/(100-driftPercent)*(100+driftPercent) + 1
}
