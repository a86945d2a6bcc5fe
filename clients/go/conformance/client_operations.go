package main

import (
	"context"
	"fmt"
	"sync"

	"leasehold"
)

// Operations on clients: connect, close, read the session, and hold many leases at once.

func connect(d *driver, _ context.Context, r *request) (any, error) {
	options := []leasehold.Option{leasehold.WithServers(r.Servers...), leasehold.WithClock(&d.clock)}
	if r.Holder != "" {
		options = append(options, leasehold.WithHolder(r.Holder))
	}
	if r.SessionTTLMS != 0 {
		options = append(options, leasehold.WithSessionTTL(ms(r.SessionTTLMS)))
	}
	if r.RequestTimeoutMS != 0 {
		options = append(options, leasehold.WithRequestTimeout(ms(r.RequestTimeoutMS)))
	}
	if r.TLS != nil {
		options = append(options, leasehold.WithTLS(r.TLS.CA, r.TLS.Cert, r.TLS.Key))
	}
	if r.BearerFile != "" {
		options = append(options, leasehold.WithBearerFile(r.BearerFile))
	}
	client, err := leasehold.New(options...)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients[r.Client] = &clientEntry{Client: client}
	return nil, nil
}

func closeClient(d *driver, _ context.Context, r *request) (any, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	return nil, client.Close()
}

func sessionOf(d *driver, _ context.Context, r *request) (any, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	if id := client.SessionID(); id != "" {
		return object{"session": id}, nil
	}
	return object{"session": nil}, nil
}

func holdMany(d *driver, ctx context.Context, r *request) (any, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	next := make(chan int)
	for range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range next {
				lease, err := client.Acquire(ctx, fmt.Sprintf("%s/%d", r.Prefix, i))
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					d.remember(client, lease)
				}
				mu.Unlock()
			}
		}()
	}
	for i := range r.Count {
		next <- i
	}
	close(next)
	group.Wait()
	if failed != nil {
		return nil, failed
	}
	return object{"held": r.Count}, nil
}

func heldCount(d *driver, _ context.Context, r *request) (any, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	leases := client.leases
	d.mu.Unlock()
	held := 0
	for _, lease := range leases {
		if lease.State() == leasehold.Held {
			held++
		}
	}
	return object{"held": held}, nil
}
