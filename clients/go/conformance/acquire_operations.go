package main

import (
	"context"
	"fmt"
	"strconv"

	"leasehold"
)

// Operations that acquire one lease or several, and that resolve an unknown outcome.

func grant(lease *leasehold.Lease, withSlot bool) object {
	body := object{"token": lease.Token(), "token_number": strconv.FormatUint(lease.TokenNumber(), 10)}
	if slot, ok := lease.Slot(); ok && withSlot {
		body["slot"] = slot
	}
	if left, ok := lease.Overlaps(); ok {
		body["overlaps_ms"] = left.Milliseconds()
	}
	return body
}

func acquire(d *driver, ctx context.Context, r *request) (any, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	lease, err := client.Acquire(ctx, r.Resource, r.acquireOptions()...)
	if err != nil {
		d.rememberUnknown(r.ID, err, client, []string{r.Lease}, r)
		return nil, err
	}
	d.keep(client, r.Lease, lease)
	return grant(lease, r.Slots > 0), nil
}

func acquireAll(d *driver, ctx context.Context, r *request) (any, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	var requirements []leasehold.Requirement
	for _, resource := range r.Resources {
		requirements = append(requirements, leasehold.Requirement(resource))
	}
	leases, err := client.AcquireAll(ctx, requirements, r.acquireOptions()...)
	if err != nil {
		d.rememberUnknown(r.ID, err, client, r.Leases, r)
		return nil, err
	}
	return d.keepAll(client, r.Leases, leases), nil
}

func (d *driver) keepAll(client *clientEntry, handles []string, leases []*leasehold.Lease) object {
	grants := []object{}
	for i, lease := range leases {
		d.keep(client, handles[i], lease)
		grants = append(grants, grant(lease, false))
	}
	return object{"grants": grants}
}

func resolve(d *driver, ctx context.Context, r *request) (any, error) {
	d.mu.Lock()
	entry := d.unknown[r.Request]
	d.mu.Unlock()
	if entry == nil {
		return nil, fmt.Errorf("request %d has no unknown outcome", r.Request)
	}
	leases, err := entry.err.ResolveAll(ctx)
	if err != nil {
		d.rememberUnknown(r.Request, err, entry.client, entry.handles, entry.request)
		return nil, err
	}
	if entry.request.Op == "acquire_all" {
		return d.keepAll(entry.client, entry.handles, leases), nil
	}
	d.keep(entry.client, entry.handles[0], leases[0])
	return grant(leases[0], entry.request.Slots > 0), nil
}
