// Command conformance drives the Go client for the suite in clients/conformance: it reads one JSON request per line from standard input, runs
// requests concurrently, and writes one JSON reply per line to standard output. Build it with the tag leasehold_mutants, so that the suite can
// break properties on purpose.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"leasehold"
)

func main() {
	d := newDriver(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, "not a request:", err)
			os.Exit(2)
		}
		if r.Op == "exit" {
			d.reply(r.ID, map[string]any{}, nil)
			return
		}
		d.start(&r)
	}
}

// driver keeps what requests name: clients, leases, messages and unknown outcomes.
type driver struct {
	outMu sync.Mutex
	out   *json.Encoder
	// clock is that of all clients.
	clock driverClock

	mu       sync.Mutex
	clients  map[string]*clientEntry
	leases   map[string]*leaseEntry
	messages map[string]*leasehold.Message
	unknown  map[int64]*unknownEntry
	running  map[int64]context.CancelFunc
}

type clientEntry struct {
	*leasehold.Client
	leases []*leasehold.Lease
}

type leaseEntry struct {
	*leasehold.Lease
	finish     chan struct{}
	finishOnce sync.Once
}

type unknownEntry struct {
	err     *leasehold.UnknownOutcomeError
	client  *clientEntry
	handles []string
	request *request
}

func newDriver(out *os.File) *driver {
	return &driver{
		out: json.NewEncoder(out), clients: map[string]*clientEntry{}, leases: map[string]*leaseEntry{},
		messages: map[string]*leasehold.Message{}, unknown: map[int64]*unknownEntry{}, running: map[int64]context.CancelFunc{},
	}
}

// start runs a request. Requests are registered in the order of their lines, so that a cancel finds the one before it.
func (d *driver) start(r *request) {
	ctx, cancel := context.WithCancel(context.Background())
	d.mu.Lock()
	d.running[r.ID] = cancel
	d.mu.Unlock()
	run, known := operations[r.Op]
	if !known {
		cancel()
		d.reply(r.ID, nil, &leasehold.Error{Code: "UNSUPPORTED_OP", Message: "no op " + r.Op, NextStep: "Add the op to the driver."})
		return
	}
	go func() {
		defer cancel()
		result, err := run(d, ctx, r)
		d.mu.Lock()
		delete(d.running, r.ID)
		d.mu.Unlock()
		d.reply(r.ID, result, err)
	}()
}

func (d *driver) reply(id int64, result any, err error) {
	line := map[string]any{"id": id}
	if err != nil {
		line["error"] = errorBody(err)
	} else {
		if result == nil {
			result = map[string]any{}
		}
		line["ok"] = result
	}
	d.outMu.Lock()
	defer d.outMu.Unlock()
	if err := d.out.Encode(line); err != nil {
		os.Exit(1)
	}
}

// errorBody describes an error of the client. Errors of Go get the code that other clients use.
func errorBody(err error) map[string]any {
	var problem *leasehold.Error
	switch {
	case errors.As(err, &problem):
	case errors.Is(err, context.Canceled):
		return map[string]any{"code": "CANCELLED", "message": err.Error(), "next_step": "Acquire again if you still need the lease."}
	case errors.Is(err, context.DeadlineExceeded):
		return map[string]any{"code": "TIMEOUT", "message": err.Error(), "next_step": "Wait longer, or retry later."}
	case errors.Is(err, leasehold.ErrClosed):
		return map[string]any{"code": "UNAVAILABLE", "message": err.Error(), "next_step": "Create a new client."}
	case errors.Is(err, leasehold.ErrReleased):
		return map[string]any{"code": "LEASE_LOST", "message": err.Error(), "next_step": "Acquire again.", "state": "released", "reason": "released"}
	default:
		return map[string]any{"code": "DRIVER", "message": err.Error(), "next_step": "Fix the driver or the scenario."}
	}
	body := map[string]any{"code": problem.Code, "message": problem.Message, "next_step": problem.NextStep, "retryable": problem.IsRetryable()}
	for key, value := range map[string]string{"holder": problem.Holder, "state": string(problem.State), "reason": problem.Reason,
		"field": problem.Field, "subject": problem.Subject, "request_id": problem.RequestID} {
		if value != "" {
			body[key] = value
		}
	}
	if problem.Mark != 0 {
		body["presented"], body["mark"] = fmt.Sprint(problem.Presented), fmt.Sprint(problem.Mark)
	}
	if len(problem.Cycle) > 0 {
		body["cycle"] = problem.Cycle
	}
	return body
}

func (d *driver) client(name string) (*clientEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if entry := d.clients[name]; entry != nil {
		return entry, nil
	}
	return nil, fmt.Errorf("no client %q", name)
}

func (d *driver) lease(name string) (*leaseEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if entry := d.leases[name]; entry != nil {
		return entry, nil
	}
	return nil, fmt.Errorf("no lease %q", name)
}

func (d *driver) keep(client *clientEntry, handle string, lease *leasehold.Lease) {
	d.mu.Lock()
	d.leases[handle] = &leaseEntry{Lease: lease, finish: make(chan struct{})}
	d.mu.Unlock()
	d.remember(client, lease)
}

// remember counts a lease of a client.
func (d *driver) remember(client *clientEntry, lease *leasehold.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	client.leases = append(client.leases, lease)
}

// rememberUnknown keeps an unknown outcome for resolve.
func (d *driver) rememberUnknown(id int64, err error, client *clientEntry, handles []string, r *request) {
	var unknown *leasehold.UnknownOutcomeError
	if !errors.As(err, &unknown) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unknown[id] = &unknownEntry{err: unknown, client: client, handles: handles, request: r}
}
