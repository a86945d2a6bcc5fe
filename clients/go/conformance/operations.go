package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"leasehold"
	"leasehold/httpfence"
)

type operation func(*driver, context.Context, *request) (any, error)

type object = map[string]any

// operations is filled by init, because cancel and others refer to it.
var operations map[string]operation

func init() {
	operations = map[string]operation{
		"hello": hello, "break": breakProperty, "block": block, "advance_clock": advanceClock, "cancel": cancelRequest,
		"connect": connect, "close": closeClient, "session": sessionOf, "hold_many": holdMany, "held_count": heldCount,
		"acquire": acquire, "acquire_all": acquireAll, "resolve": resolve, "release": release, "token": token, "state": state,
		"remaining": remaining, "wait_state": waitState, "work": work, "finish": finish, "progress": progress, "put": put, "get": get,
		"fenced_write": fencedWrite, "handoff": handoff, "wait_draining": waitDraining, "finish_drain": finishDrain,
		"wait_claimable": waitClaimable, "queue_send": queueSend, "queue_receive": queueReceive, "queue_ack": queueAck,
		"queue_nack": queueNack, "queue_extend": queueExtend,
	}
}

func hello(*driver, context.Context, *request) (any, error) {
	return object{"client": "go", "version": leasehold.Version, "skips": object{"fork": "a Go program cannot fork without exec"}}, nil
}

// block keeps every processor of the user's side busy.
func block(_ *driver, _ context.Context, r *request) (any, error) {
	until := time.Now().Add(ms(r.MS))
	var group sync.WaitGroup
	release := occupyMainLoop()
	for range runtime.GOMAXPROCS(0) {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := uint64(1); ; n++ {
				if n&0xfffff == 0 && time.Now().After(until) {
					return
				}
			}
		}()
	}
	group.Wait()
	release()
	return nil, nil
}

func advanceClock(d *driver, _ context.Context, r *request) (any, error) {
	d.clock.ahead.Add(int64(ms(r.MS)))
	return nil, nil
}

func cancelRequest(d *driver, _ context.Context, r *request) (any, error) {
	d.mu.Lock()
	cancel := d.running[r.Request]
	d.mu.Unlock()
	if cancel == nil {
		return object{"canceled": false}, nil
	}
	cancel()
	return object{"canceled": true}, nil
}

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

func (d *driver) queue(r *request) (*leasehold.Queue, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	var options []leasehold.QueueOption
	if r.VisibilityMS > 0 {
		options = append(options, leasehold.WithVisibility(ms(r.VisibilityMS)))
	}
	return client.Queue(r.Queue, options...), nil
}

func queueSend(d *driver, ctx context.Context, r *request) (any, error) {
	queue, err := d.queue(r)
	if err != nil {
		return nil, err
	}
	var options []leasehold.SendOption
	if r.DelayMS > 0 {
		options = append(options, leasehold.WithDelay(ms(r.DelayMS)))
	}
	if r.MaxAttempts > 0 {
		options = append(options, leasehold.WithMaxAttempts(r.MaxAttempts))
	}
	item, err := queue.Send(ctx, []byte(r.Body), options...)
	return object{"item": item}, err
}

func queueReceive(d *driver, ctx context.Context, r *request) (any, error) {
	queue, err := d.queue(r)
	if err != nil {
		return nil, err
	}
	messages, err := queue.Receive(ctx, max(1, r.Limit), ms(r.WaitMS))
	if err != nil {
		return nil, err
	}
	deliveries := []object{}
	for _, message := range messages {
		d.mu.Lock()
		d.messages[r.Queue+" "+message.ID+" "+message.Receipt()] = message
		d.mu.Unlock()
		deliveries = append(deliveries, object{"item": message.ID, "receipt": message.Receipt(), "attempt": message.Attempt,
			"body": string(message.Body), "token": message.Token()})
	}
	return object{"deliveries": deliveries}, nil
}

func (d *driver) message(r *request) (*leasehold.Message, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	message := d.messages[fmt.Sprintf("%s %v %v", r.Queue, r.Item, r.Receipt)]
	if message == nil {
		return nil, fmt.Errorf("no delivery of item %v with receipt %v", r.Item, r.Receipt)
	}
	return message, nil
}

func queueAck(d *driver, ctx context.Context, r *request) (any, error) {
	message, err := d.message(r)
	if err != nil {
		return nil, err
	}
	return nil, message.Ack(ctx)
}

func queueNack(d *driver, ctx context.Context, r *request) (any, error) {
	message, err := d.message(r)
	if err != nil {
		return nil, err
	}
	return nil, message.Nack(ctx, ms(r.DelayMS))
}

func queueExtend(d *driver, ctx context.Context, r *request) (any, error) {
	message, err := d.message(r)
	if err != nil {
		return nil, err
	}
	return nil, message.Extend(ctx, ms(r.VisibilityMS))
}
