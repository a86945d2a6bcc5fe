package leasehold

import (
	"context"
	"errors"
	"time"
)

// Election elects one leader: the holder of its resource leads.
type Election struct {
	client   *Client
	resource string
	options  []AcquireOption
}

// Election returns the election on a resource. The options are those of the leader's lease: [WithTTL], [WithPriority], [WithMetadata].
func (c *Client) Election(resource string, options ...AcquireOption) *Election {
	return &Election{client: c, resource: resource, options: options}
}

// Campaign waits until this client leads, or ctx ends.
func (e *Election) Campaign(ctx context.Context) (*Lease, error) {
	for {
		lease, err := e.client.Acquire(ctx, e.resource, append(e.options[:len(e.options):len(e.options)], WithWait(maxWait))...)
		if errors.Is(err, ErrTimeout) {
			continue
		}
		var unknown *UnknownOutcomeError
		if errors.As(err, &unknown) {
			lease, err = unknown.Resolve(ctx)
		}
		return lease, err
	}
}

// Lead campaigns and runs work as the leader, again and again, until work returns or ctx ends. After a revocation it does not campaign again.
//
// When ctx ends, it hands off: the work's context ends, and the successor leads as soon as work has returned. Lead returns the error of the work;
// nil if ctx ended without a leadership.
func (e *Election) Lead(ctx context.Context, work func(context.Context, *Lease) error) error {
	pause := 50 * time.Millisecond
	for {
		lease, err := e.Campaign(ctx)
		var problem *Error
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &problem) && (problem.IsRetryable() || problem.IsOutcomeUnknown() || problem.mayReacquire()):
			if !sleep(ctx, pause) {
				return nil
			}
			pause = min(2*pause, time.Second)
			continue
		case err != nil:
			return err
		}
		pause = 50 * time.Millisecond
		err, stopped := runAndRelease(ctx, lease, work)
		switch {
		case stopped == nil || ctx.Err() != nil:
			return err
		case errors.As(stopped, &problem) && !problem.mayReacquire():
			return errors.Join(stopped, err)
		}
	}
}

// runAndRelease runs work under a lease, and releases it, also after a panic. stopped is why the lease was not held any more.
func runAndRelease(ctx context.Context, lease *Lease, work func(context.Context, *Lease) error) (err, stopped error) {
	defer func() { _ = lease.Release() }()
	workCtx, cancel := lease.WithContext(ctx)
	defer cancel()
	err = work(workCtx, lease)
	return err, lease.Err()
}

// Leader describes who leads.
type Leader struct {
	Holder string
	// Metadata that the leader set with [WithMetadata], for example its address.
	Metadata string
	// TokenNumber orders leaders: a later one has a higher number.
	TokenNumber string
}

// Leader returns who leads now; nil if no one does. The answer may be outdated when it arrives.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	info, err := e.client.Show(ctx, e.resource)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var leader *Leader
	for _, lease := range info.Leases {
		// In an overlap the last one was elected last.
		leader = &Leader{Holder: lease.Holder, Metadata: lease.Metadata, TokenNumber: lease.TokenNumber}
	}
	return leader, nil
}

// observeInterval is how often an observer asks.
const observeInterval = time.Second

// Observe calls changed with the leader now and after every change, until ctx ends; with nil while no one leads. While no server answers, the last
// leader stays.
func (e *Election) Observe(ctx context.Context, changed func(*Leader)) error {
	var last *Leader
	for first := true; ; first = false {
		leader, err := e.Leader(ctx)
		var problem *Error
		if err != nil && ctx.Err() == nil && !(errors.As(err, &problem) && problem.IsRetryable()) {
			return err
		}
		if err == nil && (first || (leader == nil) != (last == nil) || (leader != nil && *leader != *last)) {
			last = leader
			changed(leader)
		}
		if !sleep(ctx, observeInterval) {
			return nil
		}
	}
}
