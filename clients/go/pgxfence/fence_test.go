package pgxfence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"leasehold"
	"leasehold/internal/servertest"
	"leasehold/pgxfence"
)

const resource = "jobs/settle"

func start(t *testing.T) (*leasehold.Client, *servertest.Postgres) {
	t.Helper()
	server := servertest.Start(t)
	postgres := servertest.StartPostgres(t)
	postgres.SQL("CREATE TABLE paid (id int, cents int); SELECT leasehold.arm('" + resource + "', '" + server.Cluster + "'); " +
		"SELECT leasehold.protect('paid', '" + resource + "')")
	client, err := leasehold.New(leasehold.WithServers(server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, postgres
}

func acquire(t *testing.T, client *leasehold.Client) *leasehold.Lease {
	t.Helper()
	lease, err := client.Acquire(context.Background(), resource)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func newPool(t *testing.T, url string, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if configure != nil {
		configure(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestPostgreSQLRefusesAStaleToken(t *testing.T) {
	client, postgres := start(t)
	pool := newPool(t, postgres.URL, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO paid VALUES (7, 1200)")
		return err
	}
	if _, err := pool.Exec(ctx, "INSERT INTO paid VALUES (7, 1200)"); !errors.Is(pgxfence.Error(err), leasehold.ErrTokenInvalid) {
		t.Fatal("a write without a token:", err)
	}
	old := acquire(t, client)
	fence := pgxfence.New(old)
	if err := fence.Claim(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if err := fence.Tx(ctx, pool, insert); err != nil {
		t.Fatal(err)
	}
	update := "UPDATE paid SET cents = $4 WHERE " + pgxfence.InlineCheck(1)
	if _, err := pool.Exec(ctx, update, fence.Args(1300)...); err != nil {
		t.Fatal(err)
	}
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, client)
	if err := pgxfence.New(next).Claim(ctx, pool); err != nil {
		t.Fatal(err)
	}
	err := fence.Tx(ctx, pool, insert)
	var stale *leasehold.Error
	if !errors.As(err, &stale) || !errors.Is(err, leasehold.ErrStaleToken) || stale.Presented != old.TokenNumber() || stale.Mark != next.TokenNumber() {
		t.Fatalf("%v", err)
	}
	if _, err := pool.Exec(ctx, update, fence.Args(1400)...); !errors.Is(pgxfence.Error(err), leasehold.ErrStaleToken) {
		t.Fatal(err)
	}
	if rows := postgres.SQL("SELECT count(*), max(cents) FROM paid"); rows != "1|1300" {
		t.Fatal(rows)
	}
}

func TestTheConnectionsOfAPoolCarryTheToken(t *testing.T) {
	client, postgres := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	old := acquire(t, client)
	prepared := 0
	pool := newPool(t, postgres.URL, func(config *pgxpool.Config) {
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { prepared++; return true, nil }
		config.MaxConns = 1
		pgxfence.Configure(config, old)
	})
	if err := pgxfence.New(old).Claim(ctx, pool); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := pool.Exec(ctx, "INSERT INTO paid VALUES (7, 1200)"); err != nil {
			t.Fatal(err)
		}
	}
	if prepared == 0 {
		t.Fatal("the pool's own hook did not run")
	}
	// A raised token is presented again on the open connection, which the pool reuses.
	before := old.Token()
	if raised, err := old.Rotate(ctx); err != nil || raised == before {
		t.Fatal(err)
	}
	if err := pgxfence.New(old).Claim(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "INSERT INTO paid VALUES (7, 1201)"); err != nil {
		t.Fatal("the raised token was not presented:", err)
	}
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	plain := newPool(t, postgres.URL, nil)
	if err := pgxfence.New(acquire(t, client)).Claim(ctx, plain); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "INSERT INTO paid VALUES (8, 1)"); !errors.Is(pgxfence.Error(err), leasehold.ErrStaleToken) {
		t.Fatal(err)
	}
	if rows := postgres.SQL("SELECT count(*) FROM paid"); rows != "4" {
		t.Fatal(rows)
	}
}
