//go:build leasehold_mutants

package main

import (
	"context"
	"fmt"

	"leasehold/internal/mutant"
)

// breakProperty breaks a property of all later clients on purpose.
func breakProperty(_ *driver, _ context.Context, r *request) (any, error) {
	switch r.Property {
	case "renewal_on_main_loop":
		mutant.RenewalOnMainLoop = true
	case "no_token":
		mutant.NoToken = true
	case "deadline_from_reply":
		mutant.DeadlineFromReply = true
	default:
		return nil, fmt.Errorf("unknown property %q", r.Property)
	}
	return nil, nil
}

// occupyMainLoop keeps the loop of the user's program busy until the returned function is called.
func occupyMainLoop() func() {
	mutant.Loop.Lock()
	return mutant.Loop.Unlock
}
