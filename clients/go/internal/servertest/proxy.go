package servertest

import (
	"net"
	"sync"
	"testing"
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
		go p.pipe(server, client, false)
		go p.pipe(client, server, true)
	}
}

func (p *Proxy) pipe(to, from net.Conn, isReply bool) {
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
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
