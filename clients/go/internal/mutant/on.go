//go:build leasehold_mutants

package mutant

import "sync"

// Faults, each named after what it breaks. Set them before the first client.
var (
	// RenewalOnMainLoop sends renewals from the loop of the user's program.
	RenewalOnMainLoop = false
	// NoToken omits the token from fenced writes.
	NoToken = false
	// DeadlineFromReply counts the local deadline from the reply.
	DeadlineFromReply = false
)

// Loop is held while the loop of the user's program is busy.
var Loop sync.Mutex

// MainLoop runs work on the loop of the user's program: only when nothing else runs there.
func MainLoop(work func()) {
	Loop.Lock()
	defer Loop.Unlock()
	work()
}
