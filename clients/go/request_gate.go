package leasehold

import (
	"context"
	"sync"
)

// maxSending is how many requests are on their way: sent, and not answered. A request that waits at the server counts until it has been sent.
//
// A session numbers its requests, and a server remembers the last 512 numbers of a session. So the requests of a busy program must arrive roughly
// in the order of their numbers. A request gets its number when it passes the gate.
const maxSending = 128

// requestGate limits the requests on their way. Goroutines pass it in the order in which they came.
type requestGate chan struct{}

func newRequestGate() requestGate { return make(requestGate, maxSending) }

// enter waits for a turn, and returns a function that ends it, which may be called again; false if ctx ended first.
func (g requestGate) enter(ctx context.Context) (leave func(), ok bool) {
	select {
	case g <- struct{}{}:
		return sync.OnceFunc(func() { <-g }), true
	case <-ctx.Done():
		return nil, false
	}
}
