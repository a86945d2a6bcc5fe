package leasehold

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Connections to the servers of one cluster: which server a request is sent to, when it is retried, and when its outcome is unknown.

const (
	dialTimeout    = 5 * time.Second
	maxLeaderHints = 3
	// maxReply limits what is read of a reply.
	maxReply = 64 << 20
	// suspectTime is how long a server that did not answer is tried last.
	suspectTime = 5 * time.Second
)

// serverPool sends requests to the servers of one cluster: to the one that answered last, then to the others, and to the leader they name.
type serverPool struct {
	servers    []*server
	gate       requestGate
	bearerFile string
	// last is the index of the server that answered last.
	last atomic.Int32
	// moved is closed and replaced when renewals reach another server than before, so that long polls at the old one are sent again.
	movedMu sync.Mutex
	moved   chan struct{}

	seenMu       sync.Mutex
	seenToken    string
	seenResource string
	seenNumber   uint64
}

type server struct {
	address
	base string
	// Renewals have connections of their own, so that no other request delays them.
	requests, renewals *http.Client
	suspectUntil       atomic.Int64
}

// request is one call, without the server.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any
	// attempt is the time for one server to answer.
	attempt time.Duration
	renewal bool
	// follow resends a long poll when the leader changes.
	follow bool
	// key is the idempotency key.
	key *requestKey
	// onSend is called before each attempt, onWritten when the request was written to a connection.
	onSend, onWritten func()
}

// requestKey is an idempotency key of a session. It gets its number when the request is sent first.
type requestKey struct {
	session  *session
	sequence atomic.Uint64
}

// number returns the number, or 0 if the request was not sent.
func (k *requestKey) number() uint64 { return k.sequence.Load() }

// text returns the key, and numbers the request. Only the goroutine that sends the request calls it.
func (k *requestKey) text() string {
	if k.number() == 0 {
		k.sequence.Store(k.session.sequence.Add(1))
	}
	return k.session.id + ":" + strconv.FormatUint(k.number(), 10)
}

func newServerPool(c *config) (*serverPool, error) {
	p := &serverPool{gate: newRequestGate(), bearerFile: c.bearerFile, moved: make(chan struct{})}
	seen := map[string]bool{}
	requiresTLS := c.tlsCA != ""
	var addresses []address
	for _, text := range c.servers {
		parsed, err := parseAddress(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if key := parsed.hostPort + parsed.socket; seen[key] {
			return nil, configError("addr", fmt.Sprintf("%s is listed twice; list each server once", text))
		} else {
			seen[key] = true
		}
		requiresTLS = requiresTLS || parsed.tls
		addresses = append(addresses, parsed)
	}
	if len(addresses) == 0 {
		return nil, configError("addr", "no server; for example 127.0.0.1:7421")
	}
	tlsConfig, err := newTLSConfig(c)
	if err != nil {
		return nil, err
	}
	for _, parsed := range addresses {
		s := &server{address: parsed}
		switch {
		case s.socket != "":
			s.base = "http://localhost"
		case requiresTLS:
			s.tls = true
			s.base = "https://" + s.hostPort
		default:
			s.base = "http://" + s.hostPort
		}
		if p.bearerFile != "" && !s.tls && !s.isLocal() {
			return nil, configError("bearer_file", "a bearer token is not sent to "+s.text+" without TLS; use https:// or set the CA")
		}
		s.requests, s.renewals = newHTTPClient(s, tlsConfig, false), newHTTPClient(s, tlsConfig, true)
		p.servers = append(p.servers, s)
	}
	return p, nil
}

func newTLSConfig(c *config) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.tlsCA != "" {
		pem, err := os.ReadFile(c.tlsCA)
		if err != nil {
			return nil, configError("tls_ca", err.Error())
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, configError("tls_ca", c.tlsCA+" contains no certificate")
		}
	}
	if c.tlsCert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, configError("tls_cert", err.Error())
		}
		// Read for each connection, so that a renewed certificate is used without a restart.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}

func newHTTPClient(s *server, tlsConfig *tls.Config, renewals bool) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     tlsConfig.Clone(),
		TLSHandshakeTimeout: dialTimeout,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     50 * time.Second,
	}
	if s.socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", s.socket)
		}
	}
	if renewals {
		// The server closes a connection that is idle for too long.
		transport.IdleConnTimeout = 0
	}
	refuseRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: refuseRedirect}
}

func (p *serverPool) close() {
	for _, s := range p.servers {
		s.requests.CloseIdleConnections()
		s.renewals.CloseIdleConnections()
	}
}

// order returns the servers to try: the last one that answered first, suspect ones last.
func (p *serverPool) order() []*server {
	now, last := time.Now().UnixNano(), int(p.last.Load())
	healthy, suspect := make([]*server, 0, len(p.servers)), []*server(nil)
	for i := range p.servers {
		s := p.servers[(last+i)%len(p.servers)]
		if s.suspectUntil.Load() > now {
			suspect = append(suspect, s)
		} else {
			healthy = append(healthy, s)
		}
	}
	return append(healthy, suspect...)
}

func (p *serverPool) setLast(s *server, renewal bool) {
	s.suspectUntil.Store(0)
	for i := range p.servers {
		if p.servers[i] == s && p.last.Swap(int32(i)) != int32(i) && renewal {
			p.movedMu.Lock()
			close(p.moved)
			p.moved = make(chan struct{})
			p.movedMu.Unlock()
		}
	}
}

// leaderMoved returns a channel that is closed when renewals reach another server.
func (p *serverPool) leaderMoved() <-chan struct{} {
	p.movedMu.Lock()
	defer p.movedMu.Unlock()
	return p.moved
}

// findLeader returns the configured server at this address. A hint to another address is not followed: no credential goes there.
func (p *serverPool) findLeader(hint string) *server {
	for _, s := range p.servers {
		if s.hostPort != "" && s.hostPort == strings.ToLower(hint) {
			return s
		}
	}
	return nil
}

// sendError is a failure without a decision of a server.
type sendError struct {
	err error
	// maybeSent: the request may have arrived.
	maybeSent bool
}

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// once sends a request to each server at most once, and to the leader they name. The error is an *Error if a server decided.
func (p *serverPool) once(ctx context.Context, r *request, reply any) error {
	queue, hints, maybeSent := p.order(), maxLeaderHints, false
	var failures []string
	var undecided *Error
	for len(queue) > 0 && ctx.Err() == nil {
		s := queue[0]
		queue = queue[1:]
		err := p.attempt(ctx, s, r, reply)
		var problem *Error
		switch {
		case err == nil:
			p.setLast(s, r.renewal)
			return nil
		case !errors.As(err, &problem):
			var failed *sendError
			maybeSent = maybeSent || (errors.As(err, &failed) && failed.maybeSent)
			failures = append(failures, s.text+": "+err.Error())
			s.suspectUntil.Store(time.Now().Add(suspectTime).UnixNano())
		case problem.Code == CodeNotLeader:
			undecided = problem
			if leader := p.findLeader(problem.Leader); leader != nil && leader != s && hints > 0 {
				hints--
				rest := []*server{leader}
				for _, other := range queue {
					if other != leader {
						rest = append(rest, other)
					}
				}
				queue = rest
			}
		case problem.IsOutcomeUnknown():
			maybeSent = true
			undecided = problem
		case problem.IsRetryable():
			undecided = problem
		default:
			p.setLast(s, r.renewal)
			return problem
		}
	}
	if undecided != nil && !maybeSent {
		return undecided
	}
	cause := fmt.Errorf("no server decided (%s)", strings.Join(failures, ", "))
	if undecided != nil {
		cause = undecided
	}
	if len(failures) == 0 && undecided == nil {
		cause = context.Cause(ctx)
	}
	return &sendError{err: cause, maybeSent: maybeSent}
}

// send repeats a request over all servers until one has decided or ctx ends. The request must be safe to repeat.
func (p *serverPool) send(ctx context.Context, r *request, reply any) error {
	maybeSent := false
	pause := 20 * time.Millisecond
	var last error
	for {
		moved := p.leaderMoved()
		// Renewals do not wait behind other requests.
		leave := func() {}
		if !r.renewal {
			turn, ok := p.gate.enter(ctx)
			if !ok {
				return p.undecided(context.Cause(ctx), last, maybeSent)
			}
			leave = turn
		}
		if r.follow {
			r.onWritten = leave
		}
		attemptCtx, cancel := context.WithCancel(ctx)
		if r.follow {
			go func() {
				select {
				case <-moved:
					cancel()
				case <-attemptCtx.Done():
				}
			}()
		}
		err := p.once(attemptCtx, r, reply)
		leave()
		interrupted := r.follow && attemptCtx.Err() != nil && ctx.Err() == nil
		cancel()
		var failed *sendError
		var problem *Error
		if err == nil {
			return nil
		}
		if errors.As(err, &problem) && !errors.As(err, &failed) && !problem.IsRetryable() {
			return err
		}
		if errors.As(err, &failed) {
			maybeSent = maybeSent || failed.maybeSent
		}
		if !interrupted {
			last = err
		}
		wait := pause/2 + rand.N(pause/2+1)
		if problem != nil && problem.RetryAfter > 0 {
			wait = max(wait, min(problem.RetryAfter, 5*time.Second))
		}
		pause = min(pause*2, time.Second)
		if interrupted {
			wait = 0
		}
		if !sleep(ctx, wait) {
			return p.undecided(err, last, maybeSent)
		}
	}
}

// undecided returns the error of a request without a decision: that of the last attempt that was not interrupted.
func (p *serverPool) undecided(err, last error, maybeSent bool) error {
	if last != nil {
		err = last
	}
	if maybeSent {
		return &sendError{err: err, maybeSent: true}
	}
	var problem *Error
	if errors.As(err, &problem) {
		return problem
	}
	return unavailable(err.Error(), err)
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// attempt sends a request to one server.
func (p *serverPool) attempt(ctx context.Context, s *server, r *request, reply any) error {
	if r.attempt > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.attempt)
		defer cancel()
	}
	response, err := p.open(ctx, s, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return &sendError{err: err, maybeSent: true}
	}
	if response.StatusCode/100 != 2 {
		return ParseProblem(response.StatusCode, body)
	}
	if reply != nil {
		var mistyped *json.UnmarshalTypeError
		if err := json.Unmarshal(body, reply); err != nil && !errors.As(err, &mistyped) {
			// A reply that was cut is a lost reply.
			return &sendError{err: fmt.Errorf("the reply is not JSON: %w", err), maybeSent: true}
		}
	}
	return nil
}

// open sends a request and returns the response with its body unread.
func (p *serverPool) open(ctx context.Context, s *server, r *request) (*http.Response, error) {
	target := s.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		encoded, err := json.Marshal(r.body)
		if err != nil {
			return nil, invalidArgument("body", err.Error())
		}
		body = bytes.NewReader(encoded)
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	if r.onWritten != nil {
		trace.WroteRequest = func(httptrace.WroteRequestInfo) { r.onWritten() }
	}
	httpRequest, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.method, target, body)
	if err != nil {
		return nil, invalidArgument("path", err.Error())
	}
	for name, values := range r.header {
		httpRequest.Header[name] = values
	}
	if body != nil {
		httpRequest.Header.Set("Content-Type", "application/json")
	}
	if r.key != nil {
		httpRequest.Header.Set("Idempotency-Key", r.key.text())
	}
	if token, resource := p.tokenSeen(); token != "" {
		httpRequest.Header.Set("Lease-Token-Seen", token)
		httpRequest.Header.Set("Lease-Token-Seen-Resource", resource)
	}
	if p.bearerFile != "" {
		secret, err := os.ReadFile(p.bearerFile)
		if err != nil {
			// The file may be about to be replaced.
			return nil, &sendError{err: fmt.Errorf("bearer_file: %w", err)}
		}
		httpRequest.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	}
	client := s.requests
	if r.renewal {
		client = s.renewals
	}
	if r.onSend != nil {
		r.onSend()
	}
	response, err := client.Do(httpRequest)
	if err != nil {
		return nil, &sendError{err: err, maybeSent: connected.Load()}
	}
	return response, nil
}

// sawToken remembers the highest token, which later requests carry: a server that lost its newest state recognizes it.
func (p *serverPool) sawToken(token, resource string, number uint64) {
	p.seenMu.Lock()
	defer p.seenMu.Unlock()
	if number > p.seenNumber {
		p.seenToken, p.seenNumber, p.seenResource = token, number, percentEncode(resource)
	}
}

func (p *serverPool) tokenSeen() (token, resource string) {
	p.seenMu.Lock()
	defer p.seenMu.Unlock()
	return p.seenToken, p.seenResource
}

// percentEncode writes a name as the value of a header.
func percentEncode(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c > ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// namePath returns a path with each segment of the name percent-encoded.
func namePath(prefix, name, verb string) string {
	segments := strings.Split(name, "/")
	for i := range segments {
		segments[i] = url.PathEscape(segments[i])
	}
	return prefix + strings.Join(segments, "/") + verb
}
