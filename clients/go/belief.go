package leasehold

import (
	"time"

	"leasehold/internal/mutant"
)

// belief is what a holder knows about its lease by its own clock: the local validity. The server's crate leasehold-core has the same rules.
//
// A handoff ends a lease one drain period after it started. A holder without contact therefore stops one drain period after the last reply
// that said "not draining".
type belief struct {
	// ttl limits what a reply may grant.
	ttl time.Duration
	// sent is the time before the newest answered request was sent.
	sent      time.Duration
	remaining time.Duration
	// drain is the drain period of the resource, or 0 if it is unknown.
	drain           time.Duration
	lastNotDraining time.Duration
	// drainUntil is set while the lease drains.
	drainUntil time.Duration
	isDraining bool
	// stopped: the holder finished its drain, or released.
	stopped bool
	// expired: the deadline was observed as passed since the last renewal.
	expired bool
	loss    *Error
}

// leaseReply is what a server says about a held lease.
type leaseReply struct {
	sent, received time.Duration
	remaining      time.Duration
	drain          time.Duration
	isDraining     bool
}

func (r leaseReply) counted() time.Duration {
	if mutant.DeadlineFromReply {
		return r.received
	}
	return r.sent
}

func newBelief(ttl, drain time.Duration, reply leaseReply) belief {
	b := belief{ttl: ttl, drain: drain, sent: reply.counted(), remaining: min(reply.remaining, ttl), lastNotDraining: reply.counted()}
	b.observe(reply.received)
	return b
}

func (b *belief) deadline() time.Duration {
	deadline := b.sent + shrink(b.remaining)
	if b.drain > 0 {
		deadline = min(deadline, b.lastNotDraining+shrink(b.drain))
	}
	if b.isDraining {
		deadline = min(deadline, b.drainUntil)
	}
	return deadline
}

func (b *belief) holds(now time.Duration) bool {
	return b.loss == nil && !b.stopped && !b.expired && now < b.deadline()
}

// observe notes a deadline that has passed, so that no clock that is read out of order revives the lease.
func (b *belief) observe(now time.Duration) {
	if now >= b.deadline() {
		b.expired = true
	}
}

// renewed applies a reply. A reply that is older than the newest one only tells about draining.
func (b *belief) renewed(reply leaseReply) {
	b.observe(reply.received)
	if b.loss != nil {
		return
	}
	sent := reply.counted()
	if reply.isDraining {
		until := sent + shrink(reply.drain)
		if b.drain > 0 {
			until = min(until, b.lastNotDraining+shrink(b.drain))
		}
		// Time of the server stops in an outage, so a later reply can report more.
		if !b.isDraining || until < b.drainUntil {
			b.drainUntil = until
		}
		b.isDraining = true
	} else if !b.isDraining {
		b.lastNotDraining = max(b.lastNotDraining, sent)
	}
	if sent < b.sent {
		return
	}
	b.sent, b.remaining = sent, min(reply.remaining, b.ttl)
	b.expired = reply.received >= b.deadline()
}

// span is the time that one renewal gives.
func (b *belief) span() time.Duration {
	if b.drain > 0 {
		return min(b.remaining, b.drain)
	}
	return b.remaining
}
