package leasehold

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Client acquires leases from the servers of one cluster. It is safe for use by several goroutines, and programs need one. Nothing is dialed
// before the first request.
type Client struct {
	config *config
	pool   *serverPool
	clock  Clock
	actors actorPool
	events *eventQueue

	mu      sync.Mutex
	session *session
	// opening is closed when the request that opens a session has ended.
	opening chan struct{}
	closed  bool
}

// New creates a client. Options override the environment: LEASEHOLD_ADDR, LEASEHOLD_TLS_CA, LEASEHOLD_TLS_CERT, LEASEHOLD_TLS_KEY and
// LEASEHOLD_BEARER_FILE, as for the command line.
func New(options ...Option) (*Client, error) {
	config, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	pool, err := newServerPool(config)
	if err != nil {
		return nil, err
	}
	client := &Client{config: config, pool: pool, clock: config.clock}
	if config.onEvent != nil {
		client.events = newEventQueue(config.onEvent)
	}
	return client, nil
}

func (c *Client) report(event ClientEvent) {
	if c.events != nil {
		c.events.add(event)
	}
}

// Holder returns the name that others see as the holder.
func (c *Client) Holder() string { return c.config.holder }

// SessionID returns the id of the client's session, as queries show it; empty before the first acquire.
func (c *Client) SessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.session.hasEnded() {
		return ""
	}
	return c.session.id
}

// attemptTimeout is the time for one server to answer a request that does not wait.
func (c *Client) attemptTimeout() time.Duration {
	if len(c.pool.servers) == 1 {
		return max(c.config.requestTimeout/2, 100*time.Millisecond)
	}
	return max(c.config.requestTimeout/time.Duration(len(c.pool.servers)+1), 100*time.Millisecond)
}

// Close releases all leases and ends the session, within the request timeout.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.requestTimeout)
	defer cancel()
	return c.CloseContext(ctx)
}

// CloseContext is Close with a context. If no server answers in time, the leases end with their ttl.
func (c *Client) CloseContext(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	open := c.session
	c.mu.Unlock()
	var err error
	if open != nil {
		err = open.close(ctx)
	}
	c.pool.close()
	if c.events != nil {
		c.events.close()
	}
	return err
}

// currentSession returns the session, and opens one if there is none.
func (c *Client) currentSession(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		switch {
		case c.closed:
			c.mu.Unlock()
			return nil, ErrClosed
		case c.session != nil && !c.session.hasEnded():
			open := c.session
			c.mu.Unlock()
			return open, nil
		case c.opening != nil:
			opening := c.opening
			c.mu.Unlock()
			select {
			case <-opening:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		opening := make(chan struct{})
		c.opening = opening
		c.mu.Unlock()
		openCtx, cancel := context.WithTimeout(ctx, c.config.requestTimeout)
		open, err := openSession(openCtx, c)
		cancel()
		c.mu.Lock()
		c.opening = nil
		if err == nil {
			c.session = open
		}
		closed := c.closed
		c.mu.Unlock()
		close(opening)
		if err == nil && closed {
			closeCtx, cancel := context.WithTimeout(context.Background(), c.config.requestTimeout)
			_ = open.close(closeCtx)
			cancel()
			return nil, ErrClosed
		}
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return open, err
	}
}

// query sends a request that changes nothing.
func (c *Client) query(ctx context.Context, path string, query url.Values, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.requestTimeout)
	defer cancel()
	r := &request{method: http.MethodGet, path: path, query: query, attempt: c.attemptTimeout()}
	return asClientError(c.pool.send(ctx, r, reply), "")
}

// maxSessionsPerRequest is how often a request that finds its session ended is sent in a new one.
const maxSessionsPerRequest = 3

// keyed sends a change under an idempotency key of the client's session. In a session that has ended the server executes nothing, so the change is
// sent again in a new one, unless an earlier attempt of it may have been executed.
func (c *Client) keyed(ctx context.Context, path string, body, reply any) error {
	for try := 1; ; try++ {
		open, err := c.currentSession(ctx)
		if err != nil {
			return err
		}
		attempts := 0
		err = open.keyed(ctx, &request{method: http.MethodPost, path: path, body: body, onSend: func() { attempts++ }}, reply)
		var problem *Error
		if !errors.As(err, &problem) || !problem.isSessionEnd() || try == maxSessionsPerRequest {
			return err
		}
		if attempts > 1 {
			return &Error{Code: CodeIndeterminate, Message: "a reply was lost, and the session of the request has ended since",
				NextStep: "Read the current state before you retry.", cause: err}
		}
	}
}

// SetCapacity sets the capacity of a resource in units.
func (c *Client) SetCapacity(ctx context.Context, resource string, units uint32) error {
	return c.keyed(ctx, namePath("/v1/leases/", resource, ":capacity"), map[string]uint32{"units": units}, nil)
}

// LeaseInfo describes a held lease, as everyone may see it. It contains no token text.
type LeaseInfo struct {
	Resource    string `json:"resource"`
	Lease       string `json:"lease"`
	Holder      string `json:"holder"`
	TokenNumber string `json:"token_number"`
	// Access is "exclusive", "shared", "slot" or "units".
	Access string  `json:"access"`
	Slot   *uint32 `json:"slot"`
	// Draining is the reason of an announced end.
	Draining string `json:"draining"`
	// Progress is the last reported progress.
	Progress string `json:"progress"`
	Metadata string `json:"metadata"`
}

// ResourceInfo describes a resource.
type ResourceInfo struct {
	Resource        string      `json:"resource"`
	Capacity        uint32      `json:"capacity"`
	Used            uint32      `json:"used"`
	HeldForOperator bool        `json:"held_for_operator"`
	Leases          []LeaseInfo `json:"leases"`
	Waiters         uint64      `json:"waiters"`
}

// Show returns who holds a resource. The answer may be outdated when it arrives: it is for people and for discovery, not for decisions.
func (c *Client) Show(ctx context.Context, resource string) (*ResourceInfo, error) {
	var reply ResourceInfo
	if err := c.query(ctx, namePath("/v1/leases/", resource, ""), nil, &reply); err != nil {
		return nil, err
	}
	return &reply, nil
}

// List returns all resources below a prefix of whole segments.
func (c *Client) List(ctx context.Context, prefix string) ([]ResourceInfo, error) {
	var all []ResourceInfo
	query := url.Values{"prefix": {prefix}}
	for {
		var page struct {
			Resources  []ResourceInfo `json:"resources"`
			NextCursor *uint32        `json:"next_cursor"`
		}
		if err := c.query(ctx, "/v1/leases", query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Resources...)
		if page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", fmt.Sprint(*page.NextCursor))
	}
}

// endOrphans ends leases of the session that this client does not know, for example from an acquire whose reply was lost and never resolved.
func (c *Client) endOrphans(s *session) {
	leases := s.list()
	ids := make([]string, 0, len(leases))
	for _, l := range leases {
		ids = append(ids, l.id)
	}
	ctx, cancel := context.WithTimeout(s.ctx, c.config.requestTimeout)
	defer cancel()
	// A lease that was granted during this call is spared: the server keeps those whose acquire it may still be asked about.
	_ = c.pool.once(ctx, &request{
		method: http.MethodPost, path: "/v1/sessions/" + s.id + ":reconcile", body: map[string]any{"leases": ids}, header: s.header(),
		attempt: c.renewalTimeout(s.ttl), renewal: true,
	}, nil)
}
