package leasehold

import (
	"context"
	"errors"
	"strings"
)

// Instance is a registered instance of a service.
type Instance struct {
	// Name of the instance, without that of the service.
	Name string
	// Details that the instance registered, for example its address.
	Details string
	// TokenNumber identifies the registration: a process that registers again has a higher number.
	TokenNumber string
}

// Register registers an instance of a service until the lease is released or the process ends: it acquires service/instance. Details, for example an
// address, are visible to all readers.
func (c *Client) Register(ctx context.Context, service, instance, details string, options ...AcquireOption) (*Lease, error) {
	return c.Acquire(ctx, service+"/"+instance, append([]AcquireOption{WithMetadata(details)}, options...)...)
}

// Instances lists the instances of a service. The list describes the past: an instance on it may be gone.
func (c *Client) Instances(ctx context.Context, service string) ([]Instance, error) {
	resources, err := c.List(ctx, service)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var instances []Instance
	for _, resource := range resources {
		name, ok := strings.CutPrefix(resource.Resource, service+"/")
		if !ok {
			continue
		}
		for _, lease := range resource.Leases {
			instances = append(instances, Instance{Name: name, Details: lease.Metadata, TokenNumber: lease.TokenNumber})
		}
	}
	return instances, nil
}
