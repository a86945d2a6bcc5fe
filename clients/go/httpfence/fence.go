package httpfence

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"leasehold"
)

// Fence is middleware that keeps a durable mark: the highest token that it has admitted.
//
//   - A request that can change something needs the token in the header Lease-Token. GET, HEAD, OPTIONS and TRACE pass, unless [FenceReads] is set.
//   - The mark is on disk before a request under it reaches the handler. One process at a time uses a mark file.
//   - The mark is raised only when no request is in flight. A claim, or the first request of a new holder, blocks new requests with lower
//     tokens, and waits for those in flight up to the claim timeout; then it fails with UNAVAILABLE and changes nothing.
//   - A missing, damaged or foreign mark refuses everything, until an operator calls [Arm].
//
// A request is in flight until its handler returns. A handler that continues to work afterwards, in another goroutine or in another service, is not
// stopped. For a service in another language, or one that is not to be changed, use the proxy `leasehold fence http`.
type Fence struct {
	store        *markStore
	cluster      string
	hash         string
	slot         uint32
	claimTimeout time.Duration
	fenceReads   bool
	now          func() time.Time

	mu       sync.Mutex
	mark     uint64
	inFlight int
	// rising is set while a higher token waits for the requests in flight.
	rising uint64
	// changed is closed and replaced when the state changes.
	changed chan struct{}
}

// Option configures a fence.
type Option func(*Fence)

// WithSlot fences a slot of the resource. Default: 0, that of an exclusive lease.
func WithSlot(slot uint32) Option { return func(f *Fence) { f.slot = slot } }

// WithClaimTimeout sets how long a higher token waits for requests in flight. Default: 5 s.
func WithClaimTimeout(d time.Duration) Option { return func(f *Fence) { f.claimTimeout = d } }

// FenceReads also refuses reads without a current token.
func FenceReads() Option { return func(f *Fence) { f.fenceReads = true } }

// Arm creates the mark file of a resource, once. It fails if the file exists.
func Arm(path, cluster, resource string, options ...Option) error {
	f := newFence(cluster, resource, options)
	return createMarkFile(path, markRecord{Cluster: f.cluster, Resource: f.hash, Slot: f.slot})
}

// Open opens the fence of a resource with its mark file. The cluster is the id that tokens contain; `leasehold status` shows it.
func Open(path, cluster, resource string, options ...Option) (*Fence, error) {
	f := newFence(cluster, resource, options)
	store, record, err := openMarkFile(path)
	if err != nil {
		return nil, err
	}
	if record.Cluster != f.cluster || record.Resource != f.hash || record.Slot != f.slot {
		_ = store.Close()
		return nil, leasehold.NewError(leasehold.CodeConflict, path+" has the mark of another cluster, resource or slot",
			"Use the mark file of this resource.", nil)
	}
	f.store, f.mark = store, record.Number
	return f, nil
}

func newFence(cluster, resource string, options []Option) *Fence {
	f := &Fence{cluster: cluster, hash: leasehold.ResourceHash(resource), claimTimeout: 5 * time.Second, now: time.Now, changed: make(chan struct{})}
	for _, option := range options {
		option(f)
	}
	return f
}

// Close releases the mark file.
func (f *Fence) Close() error { return f.store.Close() }

// Mark returns the highest admitted token number.
func (f *Fence) Mark() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mark
}

// Wrap returns a handler that admits requests before next. It also serves POST to [ClaimPath].
func (f *Fence) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isClaim := r.Method == http.MethodPost && r.URL.Path == ClaimPath
		if !isClaim && !f.fenceReads && isRead(r) {
			next.ServeHTTP(w, r)
			return
		}
		leave, err := f.admit(r)
		if err != nil {
			writeProblem(w, err)
			return
		}
		defer leave()
		if isClaim {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isRead reports whether the method changes nothing. A header that overrides the method makes it a write.
func isRead(r *http.Request) bool {
	for _, header := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// admit checks the token of a request, and returns a function to call when the request is done.
func (f *Fence) admit(r *http.Request) (func(), *leasehold.Error) {
	values := r.Header.Values(TokenHeader)
	if len(values) > 1 {
		return nil, refusal(leasehold.CodeTokenInvalid, http.StatusBadRequest, "shape", "the header Lease-Token is repeated")
	}
	text := ""
	if len(values) == 1 {
		text = values[0]
	}
	token, err := leasehold.ParseToken(text)
	if err != nil {
		problem := err.(*leasehold.Error)
		problem.Status = http.StatusBadRequest
		return nil, problem
	}
	switch {
	case token.Cluster != f.cluster:
		return nil, refusal(leasehold.CodeWrongCluster, http.StatusMisdirectedRequest, "cluster", "the token is from another cluster")
	case token.ResourceHash != f.hash:
		return nil, refusal(leasehold.CodeTokenInvalid, http.StatusBadRequest, "resource", "the token is for another resource")
	case token.Scope != 'w':
		return nil, refusal(leasehold.CodeTokenInvalid, http.StatusBadRequest, "shared", "the token is of a shared lease or a reservation")
	case token.Slot != f.slot:
		return nil, refusal(leasehold.CodeTokenInvalid, http.StatusBadRequest, "slot", "the token is for another slot")
	case token.Number > leasehold.MaxPlausible(f.now()):
		return nil, refusal(leasehold.CodeTokenImplausible, http.StatusBadRequest, "implausible", "the number is more than one day ahead of the clock")
	}
	return f.enter(r.Context(), token)
}

func refusal(code leasehold.Code, status int, reason, message string) *leasehold.Error {
	problem := leasehold.NewError(code, message, "Pass the token text of the grant of this resource.", nil)
	problem.Status, problem.Reason = status, reason
	return problem
}

// enter admits a token at or above the mark. A higher one first waits for the requests in flight, and is stored.
func (f *Fence) enter(ctx context.Context, token *leasehold.Token) (func(), *leasehold.Error) {
	deadline := time.NewTimer(f.claimTimeout)
	defer deadline.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case token.Number < f.mark:
			stale := leasehold.NewError(leasehold.CodeStaleToken, "a later holder has claimed", "Stop writing. The lease of this token has ended.", nil)
			stale.Status, stale.Presented, stale.Mark = http.StatusPreconditionFailed, token.Number, f.mark
			return nil, stale
		case token.Number < f.rising:
			// A higher token waits for the requests in flight; this one would delay it.
		case token.Number == f.mark:
			f.inFlight++
			return f.leave, nil
		case f.inFlight == 0:
			// The lock is kept while the mark is stored: no request passes under a mark that is not on disk.
			record := markRecord{Cluster: f.cluster, Resource: f.hash, Slot: f.slot, Incarnation: token.Incarnation, Number: token.Number}
			if err := f.store.save(record); err != nil {
				problem := leasehold.NewError(leasehold.CodeStorageFailed, "cannot store the mark: "+err.Error(), "Check the mark file.", err)
				problem.Status = http.StatusInternalServerError
				return nil, problem
			}
			f.mark = token.Number
			if f.rising == token.Number {
				f.rising = 0
			}
			f.notify()
			continue
		}
		f.rising = max(f.rising, token.Number)
		changed := f.changed
		f.mu.Unlock()
		var failure string
		select {
		case <-changed:
		case <-deadline.C:
			failure = "earlier requests are still in flight"
		case <-ctx.Done():
			failure = "the caller is gone"
		}
		f.mu.Lock()
		if failure != "" {
			if f.rising == token.Number {
				f.rising = 0
				f.notify()
			}
			problem := leasehold.NewError(leasehold.CodeUnavailable, failure+"; nothing was changed", "Retry the claim.", nil)
			problem.Status = http.StatusServiceUnavailable
			return nil, problem
		}
	}
}

func (f *Fence) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight--
	f.notify()
}

// notify wakes all that wait for a change. The caller holds f.mu.
func (f *Fence) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// writeProblem sends a refusal as the server and the proxy send it.
func writeProblem(w http.ResponseWriter, problem *leasehold.Error) {
	body := map[string]any{
		"type": problemType + string(problem.Code), "title": problem.Message, "status": problem.Status, "code": problem.Code,
		"detail": problem.Message, "next_step": problem.NextStep,
	}
	if problem.Reason != "" {
		body["reason"] = problem.Reason
	}
	if problem.Mark != 0 {
		body["presented"], body["mark"] = strconv.FormatUint(problem.Presented, 10), strconv.FormatUint(problem.Mark, 10)
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		http.Error(w, problem.Error(), problem.Status)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(problem.Status)
	_, _ = w.Write(encoded)
}
