//go:build !leasehold_mutants

package main

import (
	"context"
	"errors"
)

// The operation that breaks a property, in a driver that was built without mutants: it is refused.

func breakProperty(*driver, context.Context, *request) (any, error) {
	return nil, errors.New("built without the tag leasehold_mutants")
}

func occupyMainLoop() func() { return func() {} }
