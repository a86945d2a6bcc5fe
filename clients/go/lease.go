package leasehold

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// State of a lease, by the local clock.
type State int

const (
	// Held: work may continue until the local deadline.
	Held State = iota
	// Suspended: the local deadline has passed, and no server has decided since. Work stops.
	Suspended
	// Lost: the lease has ended.
	Lost
)

// String returns "held", "suspended" or "lost".
func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Suspended:
		return "suspended"
	default:
		return "lost"
	}
}

// Lease is a held lease. Its client renews it until [Lease.Release]. All methods may be called from any goroutine.
type Lease struct {
	client   *Client
	session  *session
	resource string
	id       string
	holder   string
	slot     *uint32
	actor    int
	// rotates: each renewal raises the token.
	rotates bool

	// values carries the values of the context of the acquire, without its cancellation.
	values context.Context

	mu      sync.Mutex
	token   string
	number  uint64
	secret  string
	stamped map[string]string
	belief  belief
	// due is when to renew next; lastAttempt limits how often.
	due, lastAttempt time.Duration
	// unanswered is the key of a renewal that may have raised the token; a retry repeats it.
	unanswered string
	working    bool
	ctx        context.Context
	cancel     context.CancelCauseFunc
	lost       chan struct{}
	draining   chan struct{}
	// claimFrom is when a successor may claim; claimable is closed at the latest then.
	overlaps  bool
	claimFrom time.Duration
	claimable chan struct{}
	released  bool
	releasing *release
}

type release struct {
	done chan struct{}
	err  error
}

// grantBody is the reply to an acquire.
type grantBody struct {
	Resource    string            `json:"resource"`
	Lease       string            `json:"lease"`
	Holder      string            `json:"holder"`
	Token       string            `json:"token"`
	TokenNumber string            `json:"token_number"`
	Secret      string            `json:"secret"`
	Stamped     map[string]string `json:"stamped_tokens"`
	Slot        *uint32           `json:"slot"`
	RemainingMS int64             `json:"remaining_ms"`
	OverlapsMS  *int64            `json:"overlaps_ms"`
	DrainMS     int64             `json:"drain_ms"`
	Rotates     bool              `json:"rotates"`
}

// currentBody is the reply to a renewal.
type currentBody struct {
	problemBody
	TokenNumber string            `json:"token_number"`
	Token       string            `json:"token"`
	Secret      string            `json:"secret"`
	Stamped     map[string]string `json:"stamped_tokens"`
	RemainingMS int64             `json:"remaining_ms"`
	DrainMS     *int64            `json:"drain_ms"`
	OverlapsMS  *int64            `json:"overlaps_ms"`
}

// Resource returns the name of the resource.
func (l *Lease) Resource() string { return l.resource }

// ID returns the id of the lease, as queries show it.
func (l *Lease) ID() string { return l.id }

// Holder returns the name that others see.
func (l *Lease) Holder() string { return l.holder }

// Slot returns the number of the slot; false for a shared lease and for units. An exclusive lease has slot 0.
func (l *Lease) Slot() (uint32, bool) {
	if l.slot == nil {
		return 0, false
	}
	return *l.slot, true
}

// Token returns the text of the fencing token. Present it with every write. If the charter of the resource raises tokens on renewal, call
// this again for every write.
func (l *Lease) Token() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// TokenNumber returns the number of the token, for rows that store their own mark.
func (l *Lease) TokenNumber() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number
}

// StampedToken returns the token with the stamp for a target of the charter, to present there instead of the token.
func (l *Lease) StampedToken(target string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, ok := l.stamped[target]
	return text, ok
}

// State returns the state now.
func (l *Lease) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stateAt(l.client.clock.Now())
}

func (l *Lease) stateAt(now time.Duration) State {
	switch {
	case l.belief.loss != nil || l.released:
		return Lost
	case l.working && l.belief.holds(now) && now < l.session.deadlineAt():
		return Held
	default:
		return Suspended
	}
}

// Err returns nil while the lease is held, [ErrSuspended], [ErrReleased], or the [*Error] with which it ended.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.stateAt(l.client.clock.Now()) {
	case Held:
		return nil
	case Suspended:
		return ErrSuspended
	}
	if l.belief.loss != nil {
		return l.belief.loss
	}
	return ErrReleased
}

// Remaining returns how long work may continue without another renewal.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.client.clock.Now()
	if l.stateAt(now) != Held {
		return 0
	}
	return min(l.belief.deadline(), l.session.deadlineAt()) - now
}

// Context returns a context for work under the lease. It is canceled when the lease is no longer held; context.Cause says why: [ErrSuspended],
// [ErrReleased], or an [*Error]. It has the values of the context of the acquire, and not its deadline.
//
// After a suspension the lease may be held again. A context that was canceled stays canceled; call Context again for new work.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observe(l.client.clock.Now())
	if l.ctx == nil || (l.working && l.ctx.Err() != nil) {
		l.ctx, l.cancel = context.WithCancelCause(l.values)
		if !l.working {
			l.cancel(l.stopCause())
		}
	}
	return l.ctx
}

// WithContext returns a copy of ctx that is also canceled when the lease is no longer held.
func (l *Lease) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	held := l.Context()
	merged, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return merged, func() { stop(); cancel(context.Canceled) }
}

func (l *Lease) stopCause() error {
	switch {
	case l.belief.loss != nil:
		return l.belief.loss
	case l.released || l.belief.stopped:
		return ErrReleased
	default:
		return ErrSuspended
	}
}

// Lost returns a channel that is closed when the lease has ended: a server reported it, or the program released it. A suspended lease is not
// lost yet; to stop work, use [Lease.Context].
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Draining returns a channel that is closed when a handoff or a revocation with grace has started: finish, then call [Lease.FinishDrain] or
// [Lease.Release] within [Lease.Remaining].
func (l *Lease) Draining() <-chan struct{} { return l.draining }

// observe applies the passing of time: it suspends or resumes the work. The caller holds l.mu.
func (l *Lease) observe(now time.Duration) {
	l.belief.observe(now)
	held := l.belief.holds(now) && now < l.session.deadlineAt() && !l.released
	switch {
	case l.working && !held:
		l.working = false
		if l.cancel != nil {
			l.cancel(l.stopCause())
		}
		if l.belief.loss == nil && !l.released && !l.belief.stopped {
			l.client.report(ClientEvent{Kind: "suspended", Resource: l.resource})
		}
	case !l.working && held:
		l.working = true
		l.client.report(ClientEvent{Kind: "resumed", Resource: l.resource})
	}
	if l.overlaps && now >= l.claimFrom {
		l.overlaps = false
		close(l.claimable)
	}
}

// lose records the end that a server reported. The first report stays.
func (l *Lease) lose(loss *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.belief.loss != nil || l.released {
		return
	}
	l.belief.loss = loss
	l.client.report(ClientEvent{Kind: "lost", Resource: l.resource, Err: loss})
	l.observe(l.client.clock.Now())
	close(l.lost)
	if l.overlaps {
		l.overlaps = false
		close(l.claimable)
	}
	l.session.forget(l)
}

// apply applies the reply to a renewal that was sent at sent.
func (l *Lease) apply(reply *currentBody, sent, received time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered = ""
	number, _ := strconv.ParseUint(reply.TokenNumber, 10, 64)
	if number > l.number && reply.Token != "" && !l.belief.isDraining {
		// The charter raises tokens on renewal.
		l.token, l.number = reply.Token, number
		if reply.Secret != "" {
			l.secret = reply.Secret
		}
		if reply.Stamped != nil {
			l.stamped = reply.Stamped
		}
		l.client.pool.sawToken(l.token, l.resource, number)
	} else if number != 0 && number != l.number {
		return
	}
	// A deadline that passed before this reply stops the work, even if the reply would extend it.
	l.observe(received)
	wasDraining := l.belief.isDraining
	renewal := leaseReply{sent: sent, received: received, remaining: millis(reply.RemainingMS)}
	if reply.DrainMS != nil {
		renewal.isDraining, renewal.drain = true, millis(*reply.DrainMS)
	}
	l.belief.renewed(renewal)
	if l.overlaps {
		if reply.OverlapsMS == nil {
			l.claimFrom = 0
		} else {
			l.claimFrom = min(l.claimFrom, received+stretch(millis(*reply.OverlapsMS)))
		}
	}
	l.observe(received)
	if l.belief.isDraining && !wasDraining {
		close(l.draining)
		l.client.report(ClientEvent{Kind: "draining", Resource: l.resource})
	}
	l.due = sent + l.session.jitter(l.belief.span()/3)
	l.session.scheduled(l.due, l.belief.deadline())
}

// attempted notes a renewal that was sent, and schedules the next attempt in case no reply arrives.
func (l *Lease) attempted(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastAttempt = now
	gap := max(l.belief.span()/30, 10*time.Millisecond)
	if left := l.belief.deadline() - now; left > 0 {
		l.due = now + max(gap, left/3)
	} else {
		l.due = now + max(gap, l.belief.span()/9)
	}
}

// renewalKey returns the idempotency key of the next renewal: that of the last one, until it is answered.
func (l *Lease) renewalKey() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unanswered == "" {
		l.unanswered = l.session.nextKey()
	}
	return l.unanswered
}

// askNow schedules a renewal without delay.
func (l *Lease) askNow() {
	l.mu.Lock()
	now := l.client.clock.Now()
	l.due = min(l.due, max(now, l.lastAttempt+10*time.Millisecond))
	due := l.due
	l.mu.Unlock()
	l.session.scheduled(due, due)
	l.session.wakeRenewals()
}

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

// call sends a change of this lease under an idempotency key.
func (l *Lease) call(ctx context.Context, verb string, body, reply any) error {
	r := &request{method: http.MethodPost, path: namePath("/v1/leases/", l.resource, ":"+verb), body: body, header: l.header()}
	err := l.session.keyed(ctx, r, reply)
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
func (l *Lease) Check(ctx context.Context) error { return l.current(ctx, "check", noFields{}) }

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

// HandoffMode says when the successor is granted.
type HandoffMode string

// Modes of a handoff.
const (
	// Gap: the successor is granted when this holder has finished.
	Gap HandoffMode = "gap"
	// Overlap: the successor is granted at once, and claims when this holder has finished.
	Overlap HandoffMode = "overlap"
)

// HandoffOption configures a handoff.
type HandoffOption func(*handoffBody)

type handoffBody struct {
	To    string      `json:"to,omitempty"`
	Mode  HandoffMode `json:"mode,omitempty"`
	Drain string      `json:"drain,omitempty"`
}

// ToHolder names the successor. Default: the first waiter.
func ToHolder(holder string) HandoffOption { return func(b *handoffBody) { b.To = holder } }

// WithMode sets the mode. Default: as the charter says.
func WithMode(mode HandoffMode) HandoffOption { return func(b *handoffBody) { b.Mode = mode } }

// WithDrain sets how long this holder may drain. Default: as the charter says.
func WithDrain(d time.Duration) HandoffOption {
	return func(b *handoffBody) { b.Drain = durationText(d) }
}

// Handoff starts a planned handoff. The lease continues while it drains: finish the open writes, then call [Lease.FinishDrain].
func (l *Lease) Handoff(ctx context.Context, options ...HandoffOption) error {
	var body handoffBody
	for _, option := range options {
		option(&body)
	}
	return l.current(ctx, "handoff", body)
}

// FinishDrain ends the lease of a draining holder. All its writes must have been answered.
func (l *Lease) FinishDrain(ctx context.Context) error {
	l.mu.Lock()
	draining := l.belief.isDraining
	if draining {
		// From here on nothing may be written, whatever the reply is.
		l.belief.stopped = true
		l.observe(l.client.clock.Now())
	}
	l.mu.Unlock()
	if !draining {
		return NewError(CodeConflict, "the lease is not draining", "Release the lease instead.", nil)
	}
	err := l.call(ctx, "drained", noFields{}, nil)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		return err
	}
	l.endLocally()
	return nil
}

// WaitClaimable waits until the targets may be claimed: at once, unless the predecessor of an overlap still drains. Then claim, read again, and
// write, in this order.
func (l *Lease) WaitClaimable(ctx context.Context) error {
	select {
	case <-l.claimable:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-l.lost:
		return l.Err()
	default:
		return nil
	}
}

// Overlaps returns how long the predecessor of an overlap handoff may still drain; false if there is none.
func (l *Lease) Overlaps() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.client.clock.Now()
	if !l.overlaps || now >= l.claimFrom {
		return 0, false
	}
	return l.claimFrom - now, true
}

// endLocally stops renewals and work of a lease that ended at the server's side as the program wanted.
func (l *Lease) endLocally() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopRenewals()
}

// stopRenewals marks the lease as released. The caller holds l.mu.
func (l *Lease) stopRenewals() {
	if l.released || l.belief.loss != nil {
		return
	}
	l.released = true
	l.observe(l.client.clock.Now())
	close(l.lost)
	if l.overlaps {
		l.overlaps = false
		close(l.claimable)
	}
	l.session.forget(l)
}

// Release ends the lease. All writes under it must have been answered. It cancels the lease's context, waits for the confirmation at most the
// request timeout, and is idempotent: later calls return the same result. After an error the lease ends with its ttl at the latest.
func (l *Lease) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.client.config.requestTimeout)
	defer cancel()
	return l.ReleaseContext(ctx)
}

// ReleaseContext is Release with a context. The release is sent even if ctx ends first.
func (l *Lease) ReleaseContext(ctx context.Context) error {
	l.mu.Lock()
	if l.belief.loss != nil || (l.released && l.releasing == nil) {
		l.mu.Unlock()
		return nil
	}
	if l.releasing == nil {
		l.releasing = &release{done: make(chan struct{})}
		l.stopRenewals()
		go l.sendRelease(l.releasing)
	}
	pending := l.releasing
	l.mu.Unlock()
	select {
	case <-pending.done:
		return pending.err
	case <-ctx.Done():
		return fmt.Errorf("leasehold: release of %s is not confirmed yet: %w", l.resource, context.Cause(ctx))
	}
}

func (l *Lease) sendRelease(pending *release) {
	defer close(pending.done)
	ctx, cancel := context.WithTimeout(context.Background(), l.session.ttl)
	defer cancel()
	err := l.session.keyed(ctx, &request{
		method: http.MethodPost, path: namePath("/v1/leases/", l.resource, ":release"), body: noFields{}, header: l.header(),
	}, nil)
	var problem *Error
	if errors.As(err, &problem) && (problem.isLeaseEnd() || problem.isSessionEnd()) {
		err = nil
	}
	pending.err = err
}
