package leasehold

import (
	"context"
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
	// askedAt is when something asked for a renewal without delay: a reply to an earlier request does not answer it.
	askedAt time.Duration
	// unanswered is the key of a renewal that may have raised the token; a retry repeats it.
	unanswered string
	working    bool
	// asking: a renewal is on its way.
	asking   bool
	ctx      context.Context
	cancel   context.CancelCauseFunc
	lost     chan struct{}
	draining chan struct{}
	// claimFrom is when a successor may claim; claimable is closed at the latest then.
	overlaps  bool
	claimFrom time.Duration
	claimable chan struct{}
	released  bool
	releasing *release
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
