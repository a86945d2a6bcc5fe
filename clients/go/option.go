package leasehold

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Limits of the server that are checked before a request is sent.
const (
	minTTL       = 100 * time.Millisecond
	maxTTL       = 7 * 24 * time.Hour
	maxWait      = 24 * time.Hour
	maxHolder    = 128
	maxMetadata  = 4096
	maxResources = 128
)

const (
	defaultAddress        = "127.0.0.1:7421"
	defaultSessionTTL     = 30 * time.Second
	defaultRequestTimeout = 15 * time.Second
)

// Option configures a client.
type Option func(*config)

type config struct {
	servers        []string
	holder         string
	sessionTTL     time.Duration
	requestTimeout time.Duration
	tlsCA          string
	tlsCert        string
	tlsKey         string
	bearerFile     string
	clock          Clock
	onEvent        func(ClientEvent)
}

// WithServers sets the addresses of the servers, tried in order: host:port, http://host:port, https://host:port or unix:/path. If one of them
// requires TLS, all on the network do. Default: the environment variable LEASEHOLD_ADDR, separated by commas, or 127.0.0.1:7421.
func WithServers(addresses ...string) Option {
	return func(c *config) { c.servers = addresses }
}

// WithHolder sets the name that others see as the holder. Default: the program's name, host and process id.
func WithHolder(name string) Option { return func(c *config) { c.holder = name } }

// WithSessionTTL sets how long leases outlive the last contact. Default: 30 s.
func WithSessionTTL(ttl time.Duration) Option { return func(c *config) { c.sessionTTL = ttl } }

// WithRequestTimeout sets how long a request is retried, besides its wait. Default: 15 s.
func WithRequestTimeout(d time.Duration) Option { return func(c *config) { c.requestTimeout = d } }

// WithTLS sets the CA certificates that verify the servers, and the certificate and key of this client (PEM files). With a bearer token the
// certificate and key may be empty. Default: LEASEHOLD_TLS_CA, LEASEHOLD_TLS_CERT and LEASEHOLD_TLS_KEY.
func WithTLS(ca, cert, key string) Option {
	return func(c *config) { c.tlsCA, c.tlsCert, c.tlsKey = ca, cert, key }
}

// WithBearerFile sets the file with the bearer token, which is read for each request. It is sent over TLS, and to this machine, only.
// Default: LEASEHOLD_BEARER_FILE.
func WithBearerFile(path string) Option { return func(c *config) { c.bearerFile = path } }

// WithClock replaces the clock, for tests.
func WithClock(clock Clock) Option { return func(c *config) { c.clock = clock } }

// ClientEvent is a change that a program may log.
type ClientEvent struct {
	// Kind is "suspended", "resumed", "lost", "draining", "session_opened" or "session_ended". More may be added.
	Kind string
	// Resource of the lease; empty for an event of the session.
	Resource string
	// Err is the reason of an end.
	Err error
}

// WithEventHandler calls handler for each change, in order, from a goroutine of its own.
func WithEventHandler(handler func(ClientEvent)) Option {
	return func(c *config) { c.onEvent = handler }
}

func newConfig(options []Option) (*config, error) {
	c := &config{
		sessionTTL: defaultSessionTTL, requestTimeout: defaultRequestTimeout, clock: SystemClock(),
		tlsCA: os.Getenv("LEASEHOLD_TLS_CA"), tlsCert: os.Getenv("LEASEHOLD_TLS_CERT"), tlsKey: os.Getenv("LEASEHOLD_TLS_KEY"),
		bearerFile: os.Getenv("LEASEHOLD_BEARER_FILE"),
	}
	if addr := os.Getenv("LEASEHOLD_ADDR"); addr != "" {
		c.servers = strings.Split(addr, ",")
	} else {
		c.servers = []string{defaultAddress}
	}
	for _, option := range options {
		option(c)
	}
	if c.holder == "" {
		host, _ := os.Hostname()
		c.holder = fmt.Sprintf("%s@%s:%d", filepath.Base(os.Args[0]), host, os.Getpid())
		if len(c.holder) > maxHolder {
			c.holder = c.holder[len(c.holder)-maxHolder:]
		}
	}
	if len(c.holder) > maxHolder {
		return nil, invalidArgument("holder", fmt.Sprintf("has %d bytes; at most %d", len(c.holder), maxHolder))
	}
	if err := checkRange("session_ttl", c.sessionTTL, minTTL, maxTTL); err != nil {
		return nil, err
	}
	if c.requestTimeout <= 0 {
		return nil, configError("request_timeout", "must be above 0; for example 15s")
	}
	switch {
	case c.tlsCA == "" && c.tlsCert == "" && c.tlsKey == "":
	case c.tlsCA == "":
		return nil, configError("tls_ca", "is missing; set the CA, the certificate and the key together, or the CA and a bearer file")
	case c.tlsCert == "" && c.tlsKey == "" && c.bearerFile != "":
	case c.tlsCert == "":
		return nil, configError("tls_cert", "is missing; set the CA, the certificate and the key together, or the CA and a bearer file")
	case c.tlsKey == "":
		return nil, configError("tls_key", "is missing; set the CA, the certificate and the key together, or the CA and a bearer file")
	}
	return c, nil
}

func checkRange(field string, d, least, most time.Duration) error {
	if d < least || d > most {
		return invalidArgument(field, fmt.Sprintf("%v is not allowed; from %v to %v", d, least, most))
	}
	return nil
}

// address is one parsed server address.
type address struct {
	text string
	// host and port, or the path of a unix socket.
	hostPort, socket string
	tls              bool
}

func parseAddress(text string) (address, error) {
	bad := func(reason string) (address, error) {
		return address{}, configError("addr", fmt.Sprintf("%q %s; for example 127.0.0.1:7421", text, reason))
	}
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if _, err := strconv.ParseUint(path, 10, 16); err != nil {
			if path == "" || strings.ContainsRune(path, 0) {
				return bad("names no socket")
			}
			return address{text: text, socket: path}, nil
		}
	}
	rest, tls := strings.CutPrefix(text, "https://")
	if !tls {
		rest, _ = strings.CutPrefix(text, "http://")
	}
	rest = strings.TrimSuffix(rest, "/")
	colon := strings.LastIndexByte(rest, ':')
	switch {
	case rest == "":
		return bad("is empty")
	case strings.Contains(rest, "/"):
		return bad("has a path or an unknown scheme")
	case colon < 0:
		return bad("has no port")
	case colon == 0:
		return bad("has no host")
	}
	host, port := rest[:colon], rest[colon+1:]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		if ip, err := netip.ParseAddr(inner); !closed || err != nil || !ip.Is6() {
			return bad("has an invalid IPv6 address")
		}
	} else if strings.ContainsAny(host, ":@ ") {
		return bad("has an invalid host; write an IPv6 address in brackets")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad("needs a port from 1 to 65535")
	}
	return address{text: text, hostPort: strings.ToLower(rest), tls: tls}, nil
}

// isLocal reports whether what is sent there does not leave this machine.
func (a address) isLocal() bool {
	if a.socket != "" {
		return true
	}
	host := a.hostPort[:strings.LastIndexByte(a.hostPort, ':')]
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

// AcquireOption configures an acquire.
type AcquireOption func(*acquireOptions)

type acquireOptions struct {
	holder   string
	ttl      time.Duration
	wait     time.Duration
	timeout  time.Duration
	shared   bool
	slots    uint32
	units    uint32
	priority *uint32
	maxHold  time.Duration
	progress time.Duration
	metadata string
	err      error
}

// WithWait waits this long while others hold the resource. Default: none; the acquire then fails with [ErrBusy].
func WithWait(d time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.check("wait", d, 0, maxWait); o.wait = d }
}

// WithTTL gives the lease a ttl of its own, at most that of the session. Default: the lease lives as long as the session of the client.
func WithTTL(d time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.check("ttl", d, minTTL, maxTTL); o.ttl = d }
}

// WithTimeout sets how long a request without a reply is sent again. Then the error is an [*UnknownOutcomeError]. Default: the wait and the
// request timeout of the client.
func WithTimeout(d time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.check("timeout", d, time.Millisecond, maxWait); o.timeout = d }
}

// Shared acquires a shared (read) lease. Its token writes nothing.
func Shared() AcquireOption { return func(o *acquireOptions) { o.shared = true } }

// Slots acquires one of n numbered slots of the resource: a semaphore.
func Slots(n uint32) AcquireOption {
	return func(o *acquireOptions) {
		if n == 0 {
			o.fail(invalidArgument("slots", "from 1 to 1048576"))
		}
		o.slots = n
	}
}

// Units reserves n units of the resource's capacity, without a slot.
func Units(n uint32) AcquireOption {
	return func(o *acquireOptions) {
		if n == 0 {
			o.fail(invalidArgument("units", "at least 1"))
		}
		o.units = n
	}
}

// WithPriority serves this request before waiters with a lower priority. Default: 100.
func WithPriority(p uint8) AcquireOption {
	return func(o *acquireOptions) { value := uint32(p); o.priority = &value }
}

// WithMaxHold limits how long the lease may be held, renewed or not.
func WithMaxHold(d time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.check("max_hold", d, minTTL, 366*24*time.Hour); o.maxHold = d }
}

// RequireProgress ends the lease as stalled unless [Lease.Progress] reports a higher number at least this often.
func RequireProgress(every time.Duration) AcquireOption {
	return func(o *acquireOptions) { o.check("progress", every, minTTL, maxTTL); o.progress = every }
}

// WithMetadata sets text that queries and service discovery show, at most 4,096 bytes.
func WithMetadata(text string) AcquireOption {
	return func(o *acquireOptions) {
		if len(text) > maxMetadata {
			o.fail(invalidArgument("metadata", fmt.Sprintf("has %d bytes; at most %d", len(text), maxMetadata)))
		}
		o.metadata = text
	}
}

// WithActor names the actor that holds the lease. An actor does not acquire twice what it holds. Without a name, every acquire of a client is
// an actor of its own, so that goroutines of one program exclude each other.
func WithActor(name string) AcquireOption { return func(o *acquireOptions) { o.holder = name } }

func (o *acquireOptions) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *acquireOptions) check(field string, d, least, most time.Duration) {
	if err := checkRange(field, d, least, most); err != nil {
		o.fail(err)
	}
}

func newAcquireOptions(options []AcquireOption, sessionTTL time.Duration) (*acquireOptions, error) {
	o := &acquireOptions{}
	for _, option := range options {
		option(o)
	}
	kinds := 0
	for _, set := range []bool{o.shared, o.slots > 0, o.units > 0} {
		if set {
			kinds++
		}
	}
	if kinds > 1 {
		o.fail(invalidArgument("shared", "only one of Shared, Slots and Units"))
	}
	if o.ttl > sessionTTL {
		o.fail(invalidArgument("ttl", fmt.Sprintf("%v is not allowed; a lease ends with its session, so at most %v, or a longer session ttl",
			o.ttl, sessionTTL)))
	}
	return o, o.err
}

// durationText writes a duration as the server reads it, rounded up to milliseconds.
func durationText(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10) + "ms"
}
