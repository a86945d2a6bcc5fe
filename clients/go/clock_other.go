//go:build !linux

package leasehold

import (
	"sync"
	"time"
)

// The clock of systems other than Linux: the larger of the monotonic clock and the wall clock.

type processClock struct {
	start time.Time
	mu    sync.Mutex
	last  time.Duration
}

var systemClock = &processClock{start: time.Now()}

// SystemClock returns the clock of this machine.
func SystemClock() Clock { return systemClock }

func (c *processClock) Now() time.Duration {
	now := time.Now()
	elapsed := now.Sub(c.start)
	wall := now.Round(0).Sub(c.start.Round(0))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, elapsed, wall)
	return c.last
}
