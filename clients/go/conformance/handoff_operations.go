package main

import (
	"context"

	"leasehold"
)

// Operations of a handoff: request it, wait until a lease drains, finish the drain, and wait until a successor may claim.

func handoff(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	var options []leasehold.HandoffOption
	if r.To != "" {
		options = append(options, leasehold.ToHolder(r.To))
	}
	if r.Mode != "" {
		options = append(options, leasehold.WithMode(leasehold.HandoffMode(r.Mode)))
	}
	if r.DrainMS > 0 {
		options = append(options, leasehold.WithDrain(ms(r.DrainMS)))
	}
	return nil, lease.Handoff(ctx, options...)
}

func waitDraining(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ms(r.TimeoutMS))
	defer cancel()
	select {
	case <-lease.Draining():
		return object{"drain_ms": lease.Remaining().Milliseconds()}, nil
	case <-lease.Lost():
		return nil, lease.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func finishDrain(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	return nil, lease.FinishDrain(ctx)
}

func waitClaimable(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ms(r.TimeoutMS))
	defer cancel()
	started := d.clock.Now()
	if err := lease.WaitClaimable(ctx); err != nil {
		return nil, err
	}
	return object{"after_ms": (d.clock.Now() - started).Milliseconds()}, nil
}
