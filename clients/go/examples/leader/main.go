// Command leader leads until SIGINT or SIGTERM; the next instance then leads at once. Start it several times with different names.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"leasehold"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := leasehold.New(leasehold.WithHolder(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Election("jobs/leader").Lead(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("leading under token", lease.TokenNumber())
		<-ctx.Done()
		fmt.Println("stopped:", context.Cause(ctx))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
