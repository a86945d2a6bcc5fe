package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"leasehold"
	"leasehold/httpfence"
)

// Operations on a held lease: release it, read its token and state, work under it, report progress, and write small state or to a fence.

func release(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	return nil, lease.Release()
}

func token(d *driver, _ context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	return object{"token": lease.Token(), "token_number": strconv.FormatUint(lease.TokenNumber(), 10)}, nil
}

func stateOf(lease *leaseEntry) object {
	current := lease.State()
	body := object{"state": current.String()}
	if current != leasehold.Lost {
		return body
	}
	var lost *leasehold.Error
	switch {
	case !errors.As(lease.Err(), &lost):
		body["lost_state"], body["reason"] = leasehold.LostReleased, "released"
	case lost.Code == leasehold.CodeNotCurrent:
		body["lost_state"], body["reason"] = "not_current", lost.Reason
	default:
		body["lost_state"], body["reason"] = lost.State, lost.Reason
	}
	return body
}

func state(d *driver, _ context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	return stateOf(lease), nil
}

func remaining(d *driver, _ context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	return object{"ms": lease.Remaining().Milliseconds()}, nil
}

// waitState looks at the local state only. Contexts report stops; that a lease is held again, its state does.
func waitState(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ms(r.TimeoutMS))
	defer cancel()
	for {
		current := lease.State().String()
		if current == r.State || (r.State == "stopped" && current != "held") {
			return stateOf(lease), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func work(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	started := d.clock.Now()
	after := func(stopped bool) (any, error) {
		return object{"stopped": stopped, "after_ms": (d.clock.Now() - started).Milliseconds()}, nil
	}
	select {
	case <-lease.Context().Done():
		return after(true)
	case <-lease.finish:
		return after(false)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func finish(d *driver, _ context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	lease.finishOnce.Do(func() { close(lease.finish) })
	return nil, nil
}

func number(value any) (uint64, error) {
	return strconv.ParseUint(fmt.Sprint(value), 10, 64)
}

func progress(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	at, err := number(r.Progress)
	if err != nil {
		return nil, err
	}
	return nil, lease.Progress(ctx, at)
}

func put(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	var options []leasehold.PutOption
	if r.Expected != nil {
		expected, err := number(r.Expected)
		if err != nil {
			return nil, err
		}
		options = append(options, leasehold.IfRevision(expected))
	}
	var revision uint64
	if r.Value == nil {
		err = lease.Delete(ctx, r.Key, options...)
	} else {
		revision, err = lease.Put(ctx, r.Key, []byte(*r.Value), options...)
	}
	return object{"revision": strconv.FormatUint(revision, 10)}, err
}

func get(d *driver, ctx context.Context, r *request) (any, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	entries, err := client.State(ctx, r.Resource, r.Key)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Key == r.Key {
			return object{"value": string(entry.Value), "revision": strconv.FormatUint(entry.Revision, 10),
				"token_number": strconv.FormatUint(entry.TokenNumber, 10)}, nil
		}
	}
	return object{"value": nil}, nil
}

func fencedWrite(d *driver, ctx context.Context, r *request) (any, error) {
	lease, err := d.lease(r.Lease)
	if err != nil {
		return nil, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: httpfence.NewTransport(lease, nil)}
	response, err := client.Do(post)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body := object{"status": response.StatusCode, "code": nil}
	var problem *leasehold.Error
	if errors.As(httpfence.CheckResponse(response), &problem) {
		body["code"] = problem.Code
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return body, nil
}
