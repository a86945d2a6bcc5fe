// Command queue sends its arguments as messages, and works on messages until SIGINT or SIGTERM.
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
	client, err := leasehold.New()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	queue := client.Queue("mail")
	for _, body := range os.Args[1:] {
		if _, err := queue.Send(ctx, []byte(body), leasehold.WithMaxAttempts(3)); err != nil {
			log.Fatal(err)
		}
	}
	err = queue.Work(ctx, func(ctx context.Context, message *leasehold.Message) error {
		fmt.Printf("message %s, attempt %d: %s\n", message.ID, message.Attempt, message.Body)
		return nil // acknowledged
	})
	if err != nil {
		log.Fatal(err)
	}
}
