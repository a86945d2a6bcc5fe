package servertest

import (
	"bytes"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Fault is what a proxy does to a reply.
type Fault int

const (
	// Hold never passes the reply on.
	Hold Fault = iota + 1
	// Shorten passes half of the body on, and ends the connection as if that were all.
	Shorten
)

// Proxy is a TCP proxy that can withhold what servers reply, or refuse connections.
type Proxy struct {
	// Addr is its address.
	Addr string

	target   string
	listener net.Listener

	mu          sync.Mutex
	dropReplies bool
	down        bool
	dropped     int
	open        map[net.Conn]bool
	// Replies to requests whose line contains faultFor get the fault, as often as faultsLeft says.
	fault      Fault
	faultFor   string
	faultsLeft int
	faults     int
}

// exchange is what a proxy knows about one connection.
type exchange struct {
	mu          sync.Mutex
	requestLine string
}

// SetFault applies a fault to this many replies to requests whose line contains a text.
func (p *Proxy) SetFault(fault Fault, requestLine string, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.faultFor, p.faultsLeft, p.faults = fault, requestLine, times, 0
}

// Faults returns how many replies got the fault.
func (p *Proxy) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// nextFault returns the fault of a reply, or 0.
func (p *Proxy) nextFault(requestLine string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faultsLeft == 0 || !strings.Contains(requestLine, p.faultFor) {
		return 0
	}
	p.faultsLeft--
	p.faults++
	return p.fault
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
}

// StartProxy starts a proxy to a server.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: listener.Addr().String(), target: target, listener: listener, open: map[net.Conn]bool{}}
	go p.serve()
	t.Cleanup(func() { _ = listener.Close(); p.SetDown(true) })
	return p
}

// DropReplies cuts each connection at the first byte of a reply, so that requests arrive and replies are lost.
func (p *Proxy) DropReplies(enabled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropReplies = enabled
}

// SetDown closes all connections and refuses new ones.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	if down {
		for conn := range p.open {
			_ = conn.Close()
		}
	}
}

// Dropped returns how many replies were lost.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.down {
			p.mu.Unlock()
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		p.open[client], p.open[server] = true, true
		p.mu.Unlock()
		e := &exchange{}
		go p.pipe(server, client, e, false)
		go p.pipe(client, server, e, true)
	}
}

func (p *Proxy) pipe(to, from net.Conn, e *exchange, isReply bool) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
		p.mu.Lock()
		delete(p.open, to)
		delete(p.open, from)
		p.mu.Unlock()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			drop := isReply && p.dropReplies
			if drop {
				p.dropped++
			}
			p.mu.Unlock()
			if drop {
				return
			}
			data := buffer[:n]
			e.mu.Lock()
			if line, _, ok := bytes.Cut(data, []byte(" HTTP/1.1\r\n")); !isReply && ok {
				e.requestLine = string(line)
			}
			line := e.requestLine
			e.mu.Unlock()
			if isReply {
				switch p.nextFault(line) {
				case Hold:
					continue
				case Shorten:
					_, _ = to.Write(shorten(data))
					return
				}
			}
			if _, err := to.Write(data); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

var contentLength = regexp.MustCompile(`(?i)content-length: \d+`)

// shorten returns a reply with half of its body, whose end is that of the connection.
func shorten(reply []byte) []byte {
	reply = contentLength.ReplaceAll(reply, []byte("connection: close"))
	body := bytes.Index(reply, []byte("\r\n\r\n")) + 4
	return reply[:body+(len(reply)-body)/2]
}
