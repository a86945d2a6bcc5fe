//go:build !leasehold_mutants

// Package mutant lists faults that the conformance driver can switch on. Without the build tag leasehold_mutants they are constants, and
// no fault is part of a program.
package mutant

// Faults, each named after what it breaks.
const (
	// RenewalOnMainLoop sends renewals from the loop of the user's program.
	RenewalOnMainLoop = false
	// NoToken omits the token from fenced writes.
	NoToken = false
	// DeadlineFromReply counts the local deadline from the reply.
	DeadlineFromReply = false
)

// MainLoop runs work on the loop of the user's program.
func MainLoop(work func()) { work() }
