package leasehold

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Requirement is one resource of [Client.AcquireAll].
type Requirement struct {
	Resource string
	// Shared acquires a shared (read) lease.
	Shared bool
	// Slot acquires one of the numbered slots of the resource's capacity.
	Slot bool
	// Units reserves units instead of the resource itself.
	Units uint32
}

// UnknownOutcomeError is returned when no server answered an acquire in time: the lease may have been granted. Resolve sends the request
// again under the same key, so that it is granted at most once. A grant that is never resolved ends with the session.
type UnknownOutcomeError struct {
	// Err has the code INDETERMINATE and the id of the request.
	Err     *Error
	resolve func(context.Context) ([]*Lease, error)
}

func (e *UnknownOutcomeError) Error() string { return e.Err.Error() }

// Unwrap returns the error with its code.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// Resolve returns the lease if it was granted, or grants it now; or the refusal.
func (e *UnknownOutcomeError) Resolve(ctx context.Context) (*Lease, error) {
	leases, err := e.resolve(ctx)
	if err != nil {
		return nil, err
	}
	return leases[0], nil
}

// ResolveAll is Resolve for [Client.AcquireAll].
func (e *UnknownOutcomeError) ResolveAll(ctx context.Context) ([]*Lease, error) {
	return e.resolve(ctx)
}

// acquireBody is the request of an acquire of one resource or of several.
type acquireBody struct {
	Resources []requirementBody `json:"resources,omitempty"`
	Holder    string            `json:"holder,omitempty"`
	Session   string            `json:"session"`
	TTL       string            `json:"ttl,omitempty"`
	Wait      string            `json:"wait,omitempty"`
	Shared    bool              `json:"shared,omitempty"`
	Slots     uint32            `json:"slots,omitempty"`
	Units     uint32            `json:"units,omitempty"`
	Priority  *uint32           `json:"priority,omitempty"`
	MaxHold   string            `json:"max_hold,omitempty"`
	Progress  string            `json:"progress,omitempty"`
	Metadata  string            `json:"metadata,omitempty"`
}

type requirementBody struct {
	Resource string `json:"resource"`
	Shared   bool   `json:"shared,omitempty"`
	Slot     bool   `json:"slot,omitempty"`
	Units    uint32 `json:"units,omitempty"`
}

type acquireReply struct {
	grantBody
	Grants []grantBody `json:"grants"`
}

// Acquire acquires a lease, now or after waiting ([WithWait]).
//
// If ctx ends first, the wait is withdrawn, and a grant that arrives later is released.
func (c *Client) Acquire(ctx context.Context, resource string, options ...AcquireOption) (*Lease, error) {
	o, err := newAcquireOptions(options, c.config.sessionTTL)
	if err != nil {
		return nil, err
	}
	body := o.body()
	leases, err := c.acquire(ctx, namePath("/v1/leases/", resource, ":acquire"), body, o)
	if err != nil {
		return nil, err
	}
	return leases[0], nil
}

// TryAcquire acquires a lease without waiting. It returns nil and no error if another holder has it.
func (c *Client) TryAcquire(ctx context.Context, resource string, options ...AcquireOption) (*Lease, error) {
	lease, err := c.Acquire(ctx, resource, options...)
	if errors.Is(err, ErrBusy) {
		return nil, nil
	}
	return lease, err
}

// AcquireAll acquires several resources in one step, or none. If waiting would close a cycle of waiting holders, one of them is refused with
// [ErrDeadlock] and the cycle. The leases are in the order of the requirements.
func (c *Client) AcquireAll(ctx context.Context, requirements []Requirement, options ...AcquireOption) ([]*Lease, error) {
	o, err := newAcquireOptions(options, c.config.sessionTTL)
	if err != nil {
		return nil, err
	}
	if len(requirements) == 0 || len(requirements) > maxResources {
		return nil, invalidArgument("resources", "name from 1 to 128 resources")
	}
	if o.shared || o.slots > 0 || o.units > 0 {
		return nil, invalidArgument("shared", "set Shared and Units of each requirement instead")
	}
	body := o.body()
	for _, requirement := range requirements {
		body.Resources = append(body.Resources, requirementBody(requirement))
	}
	return c.acquire(ctx, "/v1/leases:acquire_all", body, o)
}

// Do acquires a lease, runs work under it, and releases it. The context of the work ends when the lease is no longer held, or when ctx ends.
// If the lease was not held until the work returned, the error contains the cause, also if the work returned none.
func (c *Client) Do(ctx context.Context, resource string, work func(context.Context, *Lease) error, options ...AcquireOption) error {
	lease, err := c.Acquire(ctx, resource, options...)
	if err != nil {
		return err
	}
	held := lease.Context()
	workCtx, cancel := lease.WithContext(ctx)
	defer cancel()
	// The work is finished whatever the release replies; at the latest, the lease ends with its ttl. Also after a panic: a lease that nothing
	// releases is renewed for as long as the process lives.
	defer func() { _ = lease.Release() }()
	err = work(workCtx, lease)
	lease.Context() // notices a deadline that has just passed
	cause := context.Cause(held)
	switch {
	case cause == nil || errors.Is(cause, ErrReleased) || errors.Is(err, cause):
		return err
	case err == nil:
		return cause
	default:
		return errors.Join(err, cause)
	}
}

func (o *acquireOptions) body() *acquireBody {
	body := &acquireBody{Shared: o.shared, Slots: o.slots, Units: o.units, Priority: o.priority, Metadata: o.metadata}
	for _, duration := range []struct {
		field *string
		value time.Duration
	}{{&body.TTL, o.ttl}, {&body.Wait, o.wait}, {&body.MaxHold, o.maxHold}, {&body.Progress, o.progress}} {
		if duration.value > 0 {
			*duration.field = durationText(duration.value)
		}
	}
	return body
}

// pendingAcquire is one acquire under its key.
type pendingAcquire struct {
	client  *Client
	session *session
	request *requestKey
	path    string
	body    *acquireBody
	options *acquireOptions
	actor   int
	values  context.Context
}

func (c *Client) acquire(ctx context.Context, path string, body *acquireBody, o *acquireOptions) ([]*Lease, error) {
	started := c.clock.Now()
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		open, err := c.currentSession(ctx)
		if err != nil {
			return nil, err
		}
		actor := namedActor
		request := *body
		request.Session = open.id
		if request.Holder = o.holder; o.holder == "" {
			actor = c.actors.acquire()
			request.Holder = actorName(actor, c.config.holder)
		}
		rest := *o
		if o.wait > 0 {
			rest.wait = max(time.Millisecond, o.wait-(c.clock.Now()-started))
			request.Wait = durationText(rest.wait)
		}
		pending := &pendingAcquire{
			client: c, session: open, request: &requestKey{session: open}, path: path, body: &request, options: &rest, actor: actor,
			values: context.WithoutCancel(ctx),
		}
		leases, err := pending.run(ctx)
		var problem *Error
		switch {
		case !errors.As(err, &problem):
			return leases, err
		case problem.isSessionEnd():
			// The session ended before the lease was granted: nothing is held. A new one carries the request.
			open.end(sessionEnded())
		case problem.Code == CodeRequestTooOld:
			// The server forgot the request, which another one replaces for the rest of the wait.
		default:
			return nil, err
		}
		if c.clock.Now()-started >= o.wait+c.config.requestTimeout {
			return nil, err
		}
	}
}

type acquireResult struct {
	leases []*Lease
	err    error
}

// run sends the request until it is decided, its timeout ends, or ctx ends. The request outlives ctx, so that a late grant can be released.
func (p *pendingAcquire) run(ctx context.Context) ([]*Lease, error) {
	timeout := p.options.timeout
	if timeout == 0 {
		timeout = p.options.wait + p.client.config.requestTimeout
	}
	result := make(chan acquireResult, 1)
	go func() {
		sendCtx, cancel := context.WithTimeout(p.session.ctx, timeout)
		defer cancel()
		leases, err := p.send(sendCtx)
		result <- acquireResult{leases, err}
	}()
	select {
	case r := <-result:
		if ctx.Err() != nil && r.err == nil {
			releaseAll(r.leases)
			return nil, context.Cause(ctx)
		}
		return r.leases, r.err
	case <-ctx.Done():
		go p.withdraw(result)
		return nil, context.Cause(ctx)
	}
}

// withdraw cancels the wait at the server until the request is decided, and releases a grant that arrived meanwhile.
func (p *pendingAcquire) withdraw(result <-chan acquireResult) {
	ctx, cancel := context.WithTimeout(context.Background(), p.options.wait+2*p.client.config.requestTimeout)
	defer cancel()
	pause := 50 * time.Millisecond
	for {
		attempt, stop := context.WithTimeout(ctx, p.client.attemptTimeout())
		p.cancelWait(attempt)
		stop()
		timer := time.NewTimer(pause)
		select {
		case r := <-result:
			timer.Stop()
			releaseAll(r.leases)
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			pause = min(2*pause, time.Second)
		}
	}
}

// cancelWait withdraws the wait at the server, if the request was sent.
func (p *pendingAcquire) cancelWait(ctx context.Context) {
	number := p.request.number()
	if number == 0 {
		return
	}
	_ = p.client.pool.once(ctx, &request{
		method: http.MethodPost, path: "/v1/sessions/" + p.session.id + ":cancel", header: p.session.header(),
		body: map[string]string{"sequence": strconv.FormatUint(number, 10)}, attempt: p.client.attemptTimeout(),
	}, nil)
}

func releaseAll(leases []*Lease) {
	for _, lease := range leases {
		go func() { _ = lease.Release() }()
	}
}

// send sends the request under its key, and turns grants into leases.
func (p *pendingAcquire) send(ctx context.Context) ([]*Lease, error) {
	// The oldest attempt that may have been granted counts.
	var sent time.Duration
	r := &request{
		method: http.MethodPost, path: p.path, body: p.body, header: p.session.header(), key: p.request, follow: p.options.wait > 0,
		attempt: p.options.wait + p.client.attemptTimeout(),
		onSend: func() {
			if sent == 0 {
				sent = p.client.clock.Now()
			}
		},
	}
	var reply acquireReply
	err := p.client.pool.send(ctx, r, &reply)
	received := p.client.clock.Now()
	var failed *sendError
	if errors.As(err, &failed) {
		if failed.maybeSent && !p.session.hasEnded() {
			return nil, &UnknownOutcomeError{
				Err: &Error{Code: CodeIndeterminate, RequestID: p.request.text(), cause: failed.err,
					Message:  "no server answered, and the lease may have been granted: " + failed.Error(),
					NextStep: "Call Resolve."},
				resolve: p.resolve,
			}
		}
	}
	var problem *Error
	if errors.As(err, &problem) && problem.Code == CodeRequestTooOld {
		// What became of the request is not known any more. Its actor is not used again, because it may still hold the lease.
		p.cancelWait(ctx)
		p.client.endOrphans(p.session)
		return nil, problem
	}
	if err != nil {
		p.client.actors.release(p.actor)
		if p.session.hasEnded() {
			return nil, p.session.endCause()
		}
		return nil, asClientError(err, "")
	}
	grants := reply.Grants
	if len(p.body.Resources) == 0 {
		grants = []grantBody{reply.grantBody}
	}
	if len(grants) == 0 || grants[0].Token == "" {
		p.client.actors.release(p.actor)
		return nil, invalidReply("a grant without a token", nil)
	}
	return p.hold(ctx, grants, sent, received)
}

// resolve continues after an unknown outcome.
func (p *pendingAcquire) resolve(ctx context.Context) ([]*Lease, error) {
	if p.session.hasEnded() {
		return nil, p.session.endCause()
	}
	leases, err := p.run(ctx)
	if err == nil {
		return leases, nil
	}
	return nil, err
}

// hold starts to renew granted leases.
func (p *pendingAcquire) hold(ctx context.Context, grants []grantBody, sent, received time.Duration) ([]*Lease, error) {
	p.client.actors.share(p.actor, len(grants)-1)
	leases := make([]*Lease, 0, len(grants))
	for i := range grants {
		leases = append(leases, p.newLease(&grants[i], sent, received))
	}
	for _, lease := range leases {
		if !p.session.add(lease) {
			p.client.actors.release(p.actor)
			return nil, p.session.endCause()
		}
		p.client.pool.sawToken(lease.token, lease.resource, lease.number)
	}
	if received >= p.session.deadlineAt() {
		// After an outage the server may have kept the session, while its local deadline has passed.
		if err := p.session.refresh(ctx); err != nil {
			releaseAll(leases)
			return nil, err
		}
		received = p.client.clock.Now()
	}
	for _, lease := range leases {
		lease.mu.Lock()
		lease.observe(received)
		// After a wait the deadline is close or past, because it counts from before the wait.
		needsRenewal := lease.belief.deadline()-received < lease.belief.span()/2
		due, deadline := lease.due, lease.belief.deadline()
		lease.mu.Unlock()
		p.session.scheduled(due, deadline)
		if !needsRenewal {
			continue
		}
		if err := lease.Check(ctx); err != nil && lease.State() != Held {
			releaseAll(leases)
			return nil, err
		}
	}
	p.session.wakeRenewals()
	return leases, nil
}

func (p *pendingAcquire) newLease(grant *grantBody, sent, received time.Duration) *Lease {
	ttl := p.session.ttl
	if p.options.ttl > 0 {
		ttl = p.options.ttl
	}
	number, _ := strconv.ParseUint(grant.TokenNumber, 10, 64)
	lease := &Lease{
		client: p.client, session: p.session, resource: grant.Resource, id: grant.Lease, holder: grant.Holder, slot: grant.Slot,
		actor: p.actor, rotates: grant.Rotates, values: p.values, token: grant.Token, number: number, secret: grant.Secret, stamped: grant.Stamped,
		belief: newBelief(ttl, millis(grant.DrainMS), leaseReply{sent: sent, received: received, remaining: millis(grant.RemainingMS)}),
		lost:   make(chan struct{}), draining: make(chan struct{}), claimable: make(chan struct{}),
	}
	lease.working = lease.belief.holds(received) && received < p.session.deadlineAt()
	lease.due = sent + p.session.jitter(lease.belief.span()/3)
	if grant.OverlapsMS != nil {
		lease.overlaps = true
		lease.claimFrom = received + stretch(millis(*grant.OverlapsMS))
	} else {
		close(lease.claimable)
	}
	return lease
}
