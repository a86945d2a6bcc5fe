package main

import (
	"sync/atomic"
	"time"

	"leasehold"
)

// request has the fields of every operation.
type request struct {
	ID int64  `json:"id"`
	Op string `json:"op"`

	Client       string   `json:"client"`
	Servers      []string `json:"servers"`
	Holder       string   `json:"holder"`
	SessionTTLMS int64    `json:"session_ttl_ms"`
	TLS          *struct {
		CA   string `json:"ca"`
		Cert string `json:"cert"`
		Key  string `json:"key"`
	} `json:"tls"`
	BearerFile       string `json:"bearer_file"`
	RequestTimeoutMS int64  `json:"request_timeout_ms"`

	Lease      string          `json:"lease"`
	Leases     []string        `json:"leases"`
	Resource   string          `json:"resource"`
	Resources  []resourceEntry `json:"resources"`
	WaitMS     int64           `json:"wait_ms"`
	TTLMS      int64           `json:"ttl_ms"`
	Shared     bool            `json:"shared"`
	Slots      uint32          `json:"slots"`
	Units      uint32          `json:"units"`
	Priority   *uint8          `json:"priority"`
	ProgressMS int64           `json:"progress_ms"`
	MaxHoldMS  int64           `json:"max_hold_ms"`
	TimeoutMS  int64           `json:"timeout_ms"`

	Request  int64   `json:"request"`
	State    string  `json:"state"`
	Progress any     `json:"progress"`
	To       string  `json:"to"`
	Mode     string  `json:"mode"`
	DrainMS  int64   `json:"drain_ms"`
	MS       int64   `json:"ms"`
	URL      string  `json:"url"`
	Body     string  `json:"body"`
	Key      string  `json:"key"`
	Value    *string `json:"value"`
	Expected any     `json:"expected_revision"`

	Queue        string `json:"queue"`
	Item         any    `json:"item"`
	Receipt      any    `json:"receipt"`
	DelayMS      int64  `json:"delay_ms"`
	MaxAttempts  uint32 `json:"max_attempts"`
	VisibilityMS int64  `json:"visibility_ms"`
	Limit        int    `json:"limit"`

	Count    int    `json:"count"`
	Prefix   string `json:"prefix"`
	Property string `json:"property"`
}

// resourceEntry is a resource of an atomic acquire: a name, or an object.
type resourceEntry struct {
	Resource string `json:"resource"`
	Shared   bool   `json:"shared"`
	Slot     bool   `json:"slot"`
	Units    uint32 `json:"units"`
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (r *request) acquireOptions() []leasehold.AcquireOption {
	var options []leasehold.AcquireOption
	add := func(set bool, option func() leasehold.AcquireOption) {
		if set {
			options = append(options, option())
		}
	}
	add(r.WaitMS > 0, func() leasehold.AcquireOption { return leasehold.WithWait(ms(r.WaitMS)) })
	add(r.TTLMS > 0, func() leasehold.AcquireOption { return leasehold.WithTTL(ms(r.TTLMS)) })
	add(r.TimeoutMS > 0, func() leasehold.AcquireOption { return leasehold.WithTimeout(ms(r.TimeoutMS)) })
	add(r.Shared, leasehold.Shared)
	add(r.Slots > 0, func() leasehold.AcquireOption { return leasehold.Slots(r.Slots) })
	add(r.Units > 0, func() leasehold.AcquireOption { return leasehold.Units(r.Units) })
	add(r.Priority != nil, func() leasehold.AcquireOption { return leasehold.WithPriority(*r.Priority) })
	add(r.ProgressMS > 0, func() leasehold.AcquireOption { return leasehold.RequireProgress(ms(r.ProgressMS)) })
	add(r.MaxHoldMS > 0, func() leasehold.AcquireOption { return leasehold.WithMaxHold(ms(r.MaxHoldMS)) })
	return options
}

// driverClock is the system clock plus what advance_clock adds.
type driverClock struct{ ahead atomic.Int64 }

func (c *driverClock) Now() time.Duration {
	return leasehold.SystemClock().Now() + time.Duration(c.ahead.Load())
}
