// Command lock runs work that one process at a time may do. Start it twice.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"leasehold"
)

func main() {
	client, err := leasehold.New() // LEASEHOLD_ADDR, or 127.0.0.1:7421
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Do(context.Background(), "jobs/settle", func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("settling under token", lease.TokenNumber())
		select {
		case <-time.After(2 * time.Second): // the work
			fmt.Println("settled")
			return nil
		case <-ctx.Done():
			return context.Cause(ctx) // the lease is no longer held: stop
		}
	}, leasehold.WithWait(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
}
