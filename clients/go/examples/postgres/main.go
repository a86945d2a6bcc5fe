// Command postgres writes to a fenced PostgreSQL table once a second, for as long as it holds the lease. A late write is refused by the database.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"leasehold"
	"leasehold/sqlfence"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// run is all that a program adds for a fenced write.
func run(ctx context.Context, url string) error {
	client, err := leasehold.New(leasehold.WithSessionTTL(2 * time.Second))
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	lease, err := client.Acquire(ctx, "jobs/settle", leasehold.WithWait(time.Minute))
	if err != nil {
		return err
	}
	fence := sqlfence.New(lease)
	if err := fence.Claim(ctx, db); err != nil {
		return err
	}
	for id := 1; ; id++ {
		pause(id)
		if err := fence.Tx(ctx, db, func(tx *sql.Tx) error { return pay(ctx, tx, id) }); err != nil {
			return err
		}
	}
}

// pay is the program's own write.
func pay(ctx context.Context, tx *sql.Tx, id int) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO paid VALUES ($1, 1200)", id)
	fmt.Println("paid", id)
	return err
}

// pause stands for what takes time before a write.
func pause(id int) {
	fmt.Println("about to pay", id)
	time.Sleep(200 * time.Millisecond)
}
