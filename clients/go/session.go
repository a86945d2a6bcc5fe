package leasehold

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/internal/mutant"
)

// Session of a client: opened by the first acquire, and renewed by goroutines with all of its leases in batches.

const (
	// pollInterval is how often deadlines are compared with the clock. A timer of the runtime stops during suspend, so it is not enough.
	pollInterval = 100 * time.Millisecond
	// maxRenewalTimeout limits the time for one server to answer a renewal.
	maxRenewalTimeout = 5 * time.Second
	// batchSize is the limit of leases in one batch renewal.
	batchSize = 1000
)

// session is the session of a client: it carries the leases, numbers the requests, and is renewed by goroutines of its own.
type session struct {
	client *Client
	id     string
	secret string
	ttl    time.Duration

	// deadline is the local deadline in nanoseconds.
	deadline atomic.Int64
	sequence atomic.Uint64
	// due is when to renew the session; isRenewing, while a request does.
	due        atomic.Int64
	isRenewing atomic.Bool
	// nextDue and nextDeadline are lower bounds over all leases, so that a poll does not visit each of them.
	nextDue, nextDeadline atomic.Int64

	mu     sync.Mutex
	leases map[string]*Lease
	ended  *Error

	wake chan struct{}
	// over is closed when the session has ended or was closed.
	over   chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
}

type sessionBody struct {
	Session     string `json:"session"`
	Secret      string `json:"secret"`
	TTLMS       int64  `json:"ttl_ms"`
	RemainingMS int64  `json:"remaining_ms"`
	Mismatch    bool   `json:"mismatch"`
}

func openSession(ctx context.Context, client *Client) (*session, error) {
	var sent time.Duration
	var reply sessionBody
	r := &request{
		method: http.MethodPost, path: "/v1/sessions", attempt: client.attemptTimeout(),
		body:   map[string]string{"holder": client.config.holder, "ttl": durationText(client.config.sessionTTL)},
		onSend: func() { sent = client.clock.Now() },
		// The connection for renewals exists from here on.
		renewal: true,
	}
	if err := client.pool.send(ctx, r, &reply); err != nil {
		return nil, asClientError(err, "")
	}
	if reply.Session == "" {
		return nil, invalidReply("a session without an id", nil)
	}
	s := &session{
		client: client, id: reply.Session, secret: reply.Secret, ttl: client.config.sessionTTL,
		leases: map[string]*Lease{}, wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.renewed(sent, client.clock.Now(), millis(reply.RemainingMS))
	s.resetBounds()
	s.due.Store(int64(client.clock.Now() + s.jitter(s.ttl/3)))
	go s.watchDeadlines()
	go s.renewLoop()
	go s.followEvents()
	client.report(ClientEvent{Kind: "session_opened"})
	return s, nil
}

func (s *session) renewed(sent, received, remaining time.Duration) {
	if mutant.DeadlineFromReply {
		sent = received
	}
	proven := int64(sent + shrink(min(remaining, s.ttl)))
	for {
		old := s.deadline.Load()
		if proven <= old || s.deadline.CompareAndSwap(old, proven) {
			return
		}
	}
}

// refresh renews a session whose local deadline has passed, before a new lease is returned to the program.
func (s *session) refresh(ctx context.Context) error {
	var sent time.Duration
	var reply sessionBody
	err := s.client.pool.send(ctx, &request{
		method: http.MethodPost, path: "/v1/sessions/" + s.id + ":renew", body: noFields{}, header: s.header(),
		attempt: s.client.renewalTimeout(s.ttl), renewal: true, onSend: func() { sent = s.client.clock.Now() },
	}, &reply)
	if err != nil {
		return asClientError(err, "")
	}
	now := s.client.clock.Now()
	for _, l := range s.list() {
		l.mu.Lock()
		l.observe(now)
		l.mu.Unlock()
	}
	s.renewed(sent, now, millis(reply.RemainingMS))
	return nil
}

func (s *session) deadlineAt() time.Duration { return time.Duration(s.deadline.Load()) }

// jitter reduces d by up to a quarter, so that holders that started together do not renew together.
func (s *session) jitter(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

func (s *session) resetBounds() {
	const never = int64(1<<63 - 1)
	s.nextDue.Store(never)
	s.nextDeadline.Store(never)
}

// scheduled lowers the bounds of the next renewal and the next deadline.
func (s *session) scheduled(due, deadline time.Duration) {
	lower(&s.nextDue, int64(due))
	lower(&s.nextDeadline, int64(deadline))
}

func lower(bound *atomic.Int64, value int64) {
	for {
		old := bound.Load()
		if value >= old || bound.CompareAndSwap(old, value) {
			return
		}
	}
}

func (s *session) wakeRenewals() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) add(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return false
	}
	s.leases[l.id] = l
	return true
}

// forget removes a lease that ended. It may be called with the lease's lock held: no lock of a lease is taken under s.mu.
func (s *session) forget(l *Lease) {
	s.mu.Lock()
	delete(s.leases, l.id)
	s.mu.Unlock()
	s.client.actors.release(l.actor)
}

func (s *session) list() []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make([]*Lease, 0, len(s.leases))
	for _, l := range s.leases {
		leases = append(leases, l)
	}
	return leases
}

func (s *session) find(id string) *Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[id]
}

// end records that the session has ended: all its leases ended with it.
func (s *session) end(reason *Error) {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return
	}
	s.ended = reason
	s.mu.Unlock()
	for _, l := range s.list() {
		l.lose(reason)
	}
	close(s.over)
	s.cancel()
	s.client.report(ClientEvent{Kind: "session_ended", Err: reason})
}

// endCause returns why a request of this session, which is over, failed: that the session has ended, or that the client was closed.
func (s *session) endCause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil && s.ended.isSessionEnd() {
		return s.ended
	}
	return ErrClosed
}

// sessionEnded is the end of a session, and of its leases.
func sessionEnded() *Error {
	return &Error{Code: CodeLeaseLost, State: LostExpired, Reason: "session", Message: "the session of the client has ended",
		NextStep: "Stop writing, and acquire again."}
}

func (s *session) hasEnded() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// watchDeadlines cancels work whose local deadline has passed. It does no I/O, so nothing delays it.
func (s *session) watchDeadlines() {
	wasHeld := true
	for {
		now := s.client.clock.Now()
		isHeld := now < s.deadlineAt()
		if int64(now) >= s.nextDeadline.Load() || isHeld != wasHeld {
			wasHeld = isHeld
			s.nextDeadline.Store(int64(1<<63 - 1))
			for _, l := range s.list() {
				l.mu.Lock()
				l.observe(now)
				next := l.belief.deadline()
				if l.overlaps {
					next = min(next, l.claimFrom)
				}
				if next <= now {
					next = now + time.Hour
				}
				l.mu.Unlock()
				lower(&s.nextDeadline, int64(next))
			}
		}
		next := min(time.Duration(s.nextDeadline.Load()), s.deadlineAt())
		wait := pollInterval
		if until := next - now; until > 0 && until < wait {
			wait = until
		}
		if !sleep(s.ctx, wait) {
			return
		}
	}
}

// renewLoop starts the renewals that are due. Each runs in a goroutine of its own, so that a slow reply delays no other renewal.
func (s *session) renewLoop() {
	for {
		now := s.client.clock.Now()
		if now >= time.Duration(s.due.Load()) && s.isRenewing.CompareAndSwap(false, true) {
			s.start(func() {
				next := s.renewSession(now)
				s.due.Store(int64(next))
				s.isRenewing.Store(false)
			})
		}
		s.renewDue(now)
		next := time.Duration(s.nextDue.Load())
		if !s.isRenewing.Load() {
			next = min(next, time.Duration(s.due.Load()))
		}
		timer := time.NewTimer(max(0, min(next-now, pollInterval*5)))
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// start runs a renewal, and wakes the loop when it has ended.
func (s *session) start(renewal func()) {
	go func() {
		if mutant.RenewalOnMainLoop {
			mutant.MainLoop(renewal)
		} else {
			renewal()
		}
		s.wakeRenewals()
	}()
}

// renewSession renews the session, and returns when to renew it next.
func (s *session) renewSession(now time.Duration) time.Duration {
	leases := s.list()
	var digest uint64
	for _, l := range leases {
		digest ^= l.TokenNumber()
	}
	held := map[string]any{"count": len(leases), "digest": strconv.FormatUint(digest, 10)}
	var sent time.Duration
	var reply sessionBody
	err := s.client.pool.once(s.ctx, &request{
		method: http.MethodPost, path: "/v1/sessions/" + s.id + ":renew", body: map[string]any{"held": held}, header: s.header(),
		attempt: s.client.renewalTimeout(s.ttl), renewal: true, onSend: func() { sent = s.client.clock.Now() },
	}, &reply)
	received := s.client.clock.Now()
	var problem *Error
	if err != nil {
		var failed *sendError
		if errors.As(err, &problem) && !errors.As(err, &failed) && (problem.isSessionEnd() || problem.Code == CodeWrongCluster) {
			s.end(sessionEnded())
			return received + s.ttl
		}
		gap := max(s.ttl/30, 10*time.Millisecond)
		if left := s.deadlineAt() - received; left > 0 {
			return received + s.jitter(max(gap, min(left/3, s.ttl/9)))
		}
		return received + s.jitter(max(gap, s.ttl/9))
	}
	if received >= s.deadlineAt() {
		// The deadline passed before this reply: the work stops, even if the reply resumes the leases.
		for _, l := range leases {
			l.mu.Lock()
			l.observe(received)
			l.mu.Unlock()
		}
	}
	s.renewed(sent, received, millis(reply.RemainingMS))
	if reply.Mismatch {
		// Something was granted or ended in between, or the server disagrees: the replies about each lease decide.
		go s.reconcile(leases)
	}
	// Leases that live by the session are asked about in the same pass, so that their deadlines follow.
	for _, l := range leases {
		l.mu.Lock()
		if l.due < now+s.ttl/6 {
			l.due = now
		}
		l.mu.Unlock()
	}
	s.nextDue.Store(int64(now))
	return sent + s.jitter(s.ttl/3)
}

// renewalTimeout is the time for one server to answer a renewal of this ttl: a third of it if there is no other server to ask, because a busy
// machine needs a while.
func (c *Client) renewalTimeout(ttl time.Duration) time.Duration {
	part := ttl / 6
	if len(c.pool.servers) == 1 {
		part = ttl / 3
	}
	return min(max(part, min(ttl/3, 500*time.Millisecond)), maxRenewalTimeout)
}

func (s *session) header() http.Header {
	header := http.Header{}
	header.Set("Session-Secret", s.secret)
	return header
}

// renewDue starts the renewals of all leases that are due. Leases with other ttls, and so with other timeouts, are in other batches.
func (s *session) renewDue(now time.Duration) {
	if int64(now) < s.nextDue.Load() {
		return
	}
	s.nextDue.Store(int64(1<<63 - 1))
	batches := map[time.Duration][]*Lease{}
	for _, l := range s.list() {
		l.mu.Lock()
		// Those that are due soon go with this batch.
		isDue := !l.asking && l.due <= now+l.belief.span()/30
		// The end of a renewal that runs schedules the next one.
		if !l.asking && !isDue {
			lower(&s.nextDue, int64(l.due))
		}
		l.asking = l.asking || isDue
		timeout := s.client.renewalTimeout(l.belief.ttl)
		l.mu.Unlock()
		switch {
		case !isDue:
		case l.rotates:
			// A renewal that raises the token is sent by itself, under a key: its reply has the text of the new token.
			s.start(func() { s.renewBatch([]*Lease{l}, now, timeout) })
		default:
			batches[timeout] = append(batches[timeout], l)
		}
	}
	for timeout, leases := range batches {
		for len(leases) > 0 {
			batch := leases[:min(len(leases), batchSize)]
			leases = leases[len(batch):]
			s.start(func() { s.renewBatch(batch, now, timeout) })
		}
	}
}

type batchEntry struct {
	Lease       string `json:"lease"`
	TokenNumber string `json:"token_number"`
}

type batchReply struct {
	Results []currentBody `json:"results"`
}

// renewBatch renews leases in one request, or a single one with its own proof.
func (s *session) renewBatch(leases []*Lease, now, timeout time.Duration) {
	defer s.asked(leases)
	entries := make([]batchEntry, len(leases))
	for i, l := range leases {
		l.attempted(now)
		l.mu.Lock()
		entries[i] = batchEntry{l.id, strconv.FormatUint(l.number, 10)}
		l.mu.Unlock()
	}
	var sent time.Duration
	r := &request{method: http.MethodPost, attempt: timeout, renewal: true, onSend: func() { sent = s.client.clock.Now() }}
	results := make([]currentBody, len(leases))
	var err error
	if len(leases) == 1 {
		r.path, r.body, r.header = namePath("/v1/leases/", leases[0].resource, ":renew"), noFields{}, leases[0].header()
		if leases[0].rotates {
			r.header.Set("Idempotency-Key", leases[0].renewalKey())
		}
		err = s.client.pool.once(s.ctx, r, &results[0])
		var problem *Error
		var failed *sendError
		if errors.As(err, &problem) && !errors.As(err, &failed) && problem.isLeaseEnd() {
			leases[0].lose(problem)
			return
		}
	} else {
		r.path, r.body, r.header = "/v1/leases:renew", map[string]any{"session": s.id, "leases": entries}, s.header()
		var reply batchReply
		err = s.client.pool.once(s.ctx, r, &reply)
		if len(reply.Results) == len(leases) {
			results = reply.Results
		} else if err == nil {
			err = invalidReply("a batch renewal with another number of results", nil)
		}
	}
	if err != nil {
		// The next attempt is already scheduled; this one proves nothing.
		return
	}
	received := s.client.clock.Now()
	for i, l := range leases {
		if results[i].Code == "" {
			l.apply(&results[i], sent, received)
			continue
		}
		if problem := results[i].asError(0); problem.isLeaseEnd() {
			l.lose(problem)
		}
	}
}

// asked schedules the next renewals of leases whose renewal has ended.
func (s *session) asked(leases []*Lease) {
	for _, l := range leases {
		l.mu.Lock()
		l.asking = false
		next := l.due
		l.mu.Unlock()
		lower(&s.nextDue, int64(next))
	}
}

// reconcile asks about each lease now, and ends leases at the server that this client does not know.
func (s *session) reconcile(known []*Lease) {
	for _, l := range known {
		l.askNow()
	}
	s.client.endOrphans(s)
}

// nextKey returns a fresh idempotency key.
func (s *session) nextKey() string { return s.id + ":" + strconv.FormatUint(s.sequence.Add(1), 10) }

// keyed sends a change under an idempotency key of the session, until a server has decided.
func (s *session) keyed(ctx context.Context, r *request, reply any) error {
	r.key = &requestKey{session: s}
	err := s.send(ctx, r, reply)
	if r.key.number() == 0 {
		return asClientError(err, "")
	}
	return asClientError(err, r.key.text())
}

// send sends a request that is safe to repeat, until a server has decided.
func (s *session) send(ctx context.Context, r *request, reply any) error {
	if r.header == nil {
		r.header = s.header()
	}
	if r.attempt == 0 {
		r.attempt = s.client.attemptTimeout()
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.config.requestTimeout)
	defer cancel()
	err := s.client.pool.send(ctx, r, reply)
	var problem *Error
	var failed *sendError
	if errors.As(err, &problem) && !errors.As(err, &failed) && problem.isSessionEnd() {
		s.end(sessionEnded())
	}
	return err
}

// asClientError converts a failure without a decision into an error with a code.
func asClientError(err error, key string) error {
	var failed *sendError
	if !errors.As(err, &failed) {
		return err
	}
	if failed.maybeSent && key != "" {
		return &Error{Code: CodeIndeterminate, RequestID: key, Message: "no server answered, and the request may have been executed: " + failed.Error(),
			NextStep: "Read the current state before you retry.", cause: failed.err}
	}
	return unavailable(failed.Error(), failed.err)
}

// close ends the session at the server, and with it all leases.
func (s *session) close(ctx context.Context) error {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return nil
	}
	s.ended = &Error{Code: CodeLeaseLost, State: LostReleased, Reason: "released", Message: "the client was closed"}
	s.mu.Unlock()
	for _, l := range s.list() {
		l.endLocally()
	}
	close(s.over)
	s.cancel()
	err := s.client.pool.send(ctx, &request{
		method: http.MethodPost, path: "/v1/sessions/" + s.id + ":close", body: noFields{}, header: s.header(), attempt: s.client.attemptTimeout(),
		renewal: true,
	}, nil)
	var problem *Error
	if errors.As(err, &problem) && problem.isSessionEnd() {
		return nil
	}
	return asClientError(err, "")
}
