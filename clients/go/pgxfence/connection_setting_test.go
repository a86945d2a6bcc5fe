package pgxfence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"leasehold"
	"leasehold/pgxfence"
)

// A program that knows nothing of fences: it writes twice through a pool. See docs/how-to/fence/unmodified-programs.md.
func writeTwice(ctx context.Context, pool *pgxpool.Pool) error {
	for range 2 {
		if _, err := pool.Exec(ctx, "INSERT INTO paid VALUES (7, 1200)"); err != nil {
			return err
		}
	}
	return nil
}

func TestTheTokenOfTheConnectionIsEnough(t *testing.T) {
	client, postgres := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	old := acquire(t, client)
	plain := newPool(t, postgres.URL, nil)
	if err := pgxfence.New(old).Claim(ctx, plain); err != nil {
		t.Fatal(err)
	}
	if err := writeTwice(ctx, plain); !errors.Is(pgxfence.Error(err), leasehold.ErrTokenInvalid) {
		t.Fatal("a connection without a token:", err)
	}
	spelled := newPool(t, postgres.URL, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["leasehold.token"] = old.Token()
	})
	if err := writeTwice(ctx, spelled); err != nil {
		t.Fatal(err)
	}
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	if err := pgxfence.New(acquire(t, client)).Claim(ctx, plain); err != nil {
		t.Fatal(err)
	}
	if err := writeTwice(ctx, spelled); !errors.Is(pgxfence.Error(err), leasehold.ErrStaleToken) {
		t.Fatal("a late write:", err)
	}
	if rows := postgres.SQL("SELECT count(*) FROM paid"); rows != "2" {
		t.Fatal(rows)
	}
}

// `leasehold run --fence` sets PGOPTIONS, and the page says that this driver reads it.
func TestTheDriverReadsPGOPTIONS(t *testing.T) {
	client, postgres := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lease := acquire(t, client)
	if err := pgxfence.New(lease).Claim(ctx, newPool(t, postgres.URL, nil)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGOPTIONS", "-c leasehold.token="+lease.Token())
	if err := writeTwice(ctx, newPool(t, postgres.URL, nil)); err != nil {
		t.Fatal(err)
	}
	if rows := postgres.SQL("SELECT count(*) FROM paid"); rows != "2" {
		t.Fatal(rows)
	}
}
