package pgxfence_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"leasehold"
	"leasehold/internal/servertest"
	"leasehold/pgxfence"
)

// settle is the snippet of the repository's README. `crates/cli/tests/readme.rs` compares it with this file.
func settle(ctx context.Context, server *servertest.Server, pool *pgxpool.Pool) error {
	client, err := leasehold.New(leasehold.WithServers(server.Addr))
	if err != nil {
		return err
	}
	return client.Do(ctx, "jobs/settle", func(ctx context.Context, lease *leasehold.Lease) error {
		fence := pgxfence.New(lease)
		if err := fence.Claim(ctx, pool); err != nil { // before anything is read
			return err
		}
		return fence.Tx(ctx, pool, func(tx pgx.Tx) error { // check and write are one step
			_, err := tx.Exec(ctx, "INSERT INTO paid VALUES (7, 1200)")
			return err
		})
	}, leasehold.WithWait(time.Minute))
}

func TestTheSnippetOfTheReadmeWritesUnderItsLease(t *testing.T) {
	server := servertest.Start(t)
	postgres := servertest.StartPostgres(t)
	postgres.SQL("CREATE TABLE paid (id int, cents int); SELECT leasehold.arm('jobs/settle', '" + server.Cluster + "'); " +
		"SELECT leasehold.protect('paid', 'jobs/settle')")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := settle(ctx, server, newPool(t, postgres.URL, nil)); err != nil {
		t.Fatal(err)
	}
	if rows := postgres.SQL("SELECT id, cents FROM paid"); rows != "7|1200" {
		t.Fatal(rows)
	}
}
