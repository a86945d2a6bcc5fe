package leasehold

import (
	"context"
	"errors"
	"time"
)

// Draining returns a channel that is closed when a handoff or a revocation with grace has started: finish, then call [Lease.FinishDrain] or
// [Lease.Release] within [Lease.Remaining].
func (l *Lease) Draining() <-chan struct{} { return l.draining }

// HandoffMode says when the successor is granted.
type HandoffMode string

// Modes of a handoff.
const (
	// Gap: the successor is granted when this holder has finished.
	Gap HandoffMode = "gap"
	// Overlap: the successor is granted at once, and claims when this holder has finished.
	Overlap HandoffMode = "overlap"
)

// HandoffOption configures a handoff.
type HandoffOption func(*handoffBody)

type handoffBody struct {
	To    string      `json:"to,omitempty"`
	Mode  HandoffMode `json:"mode,omitempty"`
	Drain string      `json:"drain,omitempty"`
}

// ToHolder names the successor. Default: the first waiter.
func ToHolder(holder string) HandoffOption { return func(b *handoffBody) { b.To = holder } }

// WithMode sets the mode. Default: as the charter says.
func WithMode(mode HandoffMode) HandoffOption { return func(b *handoffBody) { b.Mode = mode } }

// WithDrain sets how long this holder may drain. Default: as the charter says.
func WithDrain(d time.Duration) HandoffOption {
	return func(b *handoffBody) { b.Drain = durationText(d) }
}

// Handoff starts a planned handoff. The lease continues while it drains: finish the open writes, then call [Lease.FinishDrain].
func (l *Lease) Handoff(ctx context.Context, options ...HandoffOption) error {
	var body handoffBody
	for _, option := range options {
		option(&body)
	}
	return l.current(ctx, "handoff", body)
}

// FinishDrain ends the lease of a draining holder. All its writes must have been answered.
func (l *Lease) FinishDrain(ctx context.Context) error {
	l.mu.Lock()
	draining := l.belief.isDraining
	if draining {
		// From here on nothing may be written, whatever the reply is.
		l.belief.stopped = true
		l.observe(l.client.clock.Now())
	}
	l.mu.Unlock()
	if !draining {
		return NewError(CodeConflict, "the lease is not draining", "Release the lease instead.", nil)
	}
	err := l.call(ctx, "drained", noFields{}, nil)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		return err
	}
	l.endLocally()
	return nil
}

// WaitClaimable waits until the targets may be claimed: at once, unless the predecessor of an overlap still drains. Then claim, read again, and
// write, in this order.
func (l *Lease) WaitClaimable(ctx context.Context) error {
	select {
	case <-l.claimable:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-l.lost:
		return l.Err()
	default:
		return nil
	}
}

// Overlaps returns how long the predecessor of an overlap handoff may still drain; false if there is none.
func (l *Lease) Overlaps() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.client.clock.Now()
	if !l.overlaps || now >= l.claimFrom {
		return 0, false
	}
	return l.claimFrom - now, true
}
