package leasehold

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// header returns what proves the lease in a single call.
func (l *Lease) header() http.Header {
	l.mu.Lock()
	defer l.mu.Unlock()
	header := http.Header{}
	header.Set("Lease-Token", l.token)
	if l.secret != "" {
		header.Set("Lease-Secret", l.secret)
	}
	header.Set("Session-Secret", l.session.secret)
	return header
}

// request returns a request about this lease, which its token proves.
func (l *Lease) request(verb string, body any) *request {
	return &request{method: http.MethodPost, path: namePath("/v1/leases/", l.resource, ":"+verb), body: body, header: l.header()}
}

// call sends a change of this lease under an idempotency key.
func (l *Lease) call(ctx context.Context, verb string, body, reply any) error {
	return l.observeEnd(l.session.keyed(ctx, l.request(verb, body), reply))
}

// observeEnd notes an end of the lease that a refusal reports.
func (l *Lease) observeEnd(err error) error {
	var problem *Error
	if errors.As(err, &problem) && problem.isLeaseEnd() && problem.Code != CodeNotCurrent {
		l.lose(problem)
	}
	return err
}

// current sends a change whose reply is the state of the lease.
func (l *Lease) current(ctx context.Context, verb string, body any) error {
	var reply currentBody
	sent := l.client.clock.Now()
	if err := l.call(ctx, verb, body, &reply); err != nil {
		return err
	}
	l.apply(&reply, sent, l.client.clock.Now())
	return nil
}

type noFields struct{}

// Check asks a server whether the lease is current. It is an optimization, not a safety measure.
func (l *Lease) Check(ctx context.Context) error {
	var reply currentBody
	sent := l.client.clock.Now()
	err := l.observeEnd(asClientError(l.session.send(ctx, l.request("check", noFields{}), &reply), ""))
	if err == nil {
		l.apply(&reply, sent, l.client.clock.Now())
	}
	return err
}

// Progress reports progress, which must rise. A lease with [RequireProgress] ends as stalled without it. It also renews the lease.
func (l *Lease) Progress(ctx context.Context, at uint64) error {
	return l.current(ctx, "renew", map[string]string{"progress": strconv.FormatUint(at, 10)})
}

// Rotate raises the token and returns the new one. A target that has seen it refuses the old one.
func (l *Lease) Rotate(ctx context.Context) (string, error) {
	if err := l.current(ctx, "rotate", noFields{}); err != nil {
		return "", err
	}
	return l.Token(), nil
}

// Confirm turns reserved units into a permanent commitment, and ends the lease.
func (l *Lease) Confirm(ctx context.Context) error {
	if err := l.call(ctx, "confirm", noFields{}, nil); err != nil {
		return err
	}
	l.endLocally()
	return nil
}

// Resize changes the number of reserved units.
func (l *Lease) Resize(ctx context.Context, units uint32) error {
	return l.call(ctx, "resize", map[string]uint32{"units": units}, nil)
}

// Veto defers the expiry of the lease.
func (l *Lease) Veto(ctx context.Context, d time.Duration) error {
	return l.call(ctx, "veto", map[string]string{"duration": durationText(d)}, nil)
}
