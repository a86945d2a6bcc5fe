package leasehold

import (
	"strconv"
	"time"
)

// apply applies the reply to a renewal that was sent at sent.
func (l *Lease) apply(reply *currentBody, sent, received time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered = ""
	number, _ := strconv.ParseUint(reply.TokenNumber, 10, 64)
	if number > l.number && reply.Token != "" && !l.belief.isDraining {
		// The charter raises tokens on renewal.
		l.token, l.number = reply.Token, number
		if reply.Secret != "" {
			l.secret = reply.Secret
		}
		if reply.Stamped != nil {
			l.stamped = reply.Stamped
		}
		l.client.pool.sawToken(l.token, l.resource, number)
	} else if number != 0 && number != l.number {
		return
	}
	// A deadline that passed before this reply stops the work, even if the reply would extend it.
	l.observe(received)
	wasDraining := l.belief.isDraining
	renewal := leaseReply{sent: sent, received: received, remaining: millis(reply.RemainingMS)}
	if reply.DrainMS != nil {
		renewal.isDraining, renewal.drain = true, millis(*reply.DrainMS)
	}
	l.belief.renewed(renewal)
	if l.overlaps {
		if reply.OverlapsMS == nil {
			l.claimFrom = 0
		} else {
			l.claimFrom = min(l.claimFrom, received+stretch(millis(*reply.OverlapsMS)))
		}
	}
	l.observe(received)
	if l.belief.isDraining && !wasDraining {
		close(l.draining)
		l.client.report(ClientEvent{Kind: "draining", Resource: l.resource})
	}
	l.due = sent + l.session.jitter(l.belief.span()/3)
	if l.askedAt > sent {
		l.due = received
	}
	l.session.scheduled(l.due, l.belief.deadline())
}

// attempted notes a renewal that was sent, and schedules the next attempt in case no reply arrives.
func (l *Lease) attempted(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastAttempt = now
	gap := max(l.belief.span()/30, 10*time.Millisecond)
	if left := l.belief.deadline() - now; left > 0 {
		l.due = now + max(gap, left/3)
	} else {
		l.due = now + max(gap, l.belief.span()/9)
	}
}

// renewalKey returns the idempotency key of the next renewal: that of the last one, until it is answered.
func (l *Lease) renewalKey() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unanswered == "" {
		l.unanswered = l.session.nextKey()
	}
	return l.unanswered
}

// askNow schedules a renewal without delay.
func (l *Lease) askNow() {
	l.mu.Lock()
	now := l.client.clock.Now()
	l.askedAt = now
	l.due = min(l.due, max(now, l.lastAttempt+10*time.Millisecond))
	due := l.due
	l.mu.Unlock()
	l.session.scheduled(due, due)
	l.session.wakeRenewals()
}
