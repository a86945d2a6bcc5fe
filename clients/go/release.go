package leasehold

import (
	"context"
	"errors"
	"fmt"
)

// Release of a lease: work and renewals stop at once, then the server confirms.

type release struct {
	done chan struct{}
	err  error
}

// endLocally stops renewals and work of a lease that ended at the server's side as the program wanted.
func (l *Lease) endLocally() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopRenewals()
}

// stopRenewals marks the lease as released. The caller holds l.mu.
func (l *Lease) stopRenewals() {
	if l.released || l.belief.loss != nil {
		return
	}
	l.released = true
	l.observe(l.client.clock.Now())
	close(l.lost)
	if l.overlaps {
		l.overlaps = false
		close(l.claimable)
	}
	l.session.forget(l)
}

// Release ends the lease. All writes under it must have been answered. It cancels the lease's context, waits for the confirmation at most the
// request timeout, and is idempotent: later calls return the same result. If the lease had ended otherwise, the error says how: compare it with
// [ErrLeaseLost]. After any other error the lease ends with its ttl at the latest.
func (l *Lease) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.client.config.requestTimeout)
	defer cancel()
	return l.ReleaseContext(ctx)
}

// ReleaseContext is Release with a context. The release is sent even if ctx ends first.
func (l *Lease) ReleaseContext(ctx context.Context) error {
	l.mu.Lock()
	if l.belief.loss != nil {
		defer l.mu.Unlock()
		return l.belief.loss
	}
	if l.released && l.releasing == nil {
		l.mu.Unlock()
		return nil
	}
	if l.releasing == nil {
		l.releasing = &release{done: make(chan struct{})}
		l.stopRenewals()
		go l.sendRelease(l.releasing)
	}
	pending := l.releasing
	l.mu.Unlock()
	select {
	case <-pending.done:
		return pending.err
	case <-ctx.Done():
		return fmt.Errorf("leasehold: release of %s is not confirmed yet: %w", l.resource, context.Cause(ctx))
	}
}

func (l *Lease) sendRelease(pending *release) {
	defer close(pending.done)
	ctx, cancel := context.WithTimeout(context.Background(), l.session.ttl)
	defer cancel()
	// Without a key: it names the token, so that it is safe to repeat.
	err := asClientError(l.session.send(ctx, l.request("release", noFields{}), nil), "")
	var problem *Error
	if errors.As(err, &problem) && problem.isLeaseEnd() && problem.State == LostReleased {
		// An earlier attempt released it.
		err = nil
	}
	pending.err = err
}
