package pgxfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// The page says whether the driver reads PGOPTIONS, which `leasehold run --fence` sets.
func TestTheDriverDoesNotReadPGOPTIONS(t *testing.T) {
	t.Setenv("PGOPTIONS", "-c leasehold.token=lh1-from-the-environment")
	config, err := pgx.ParseConfig("postgres://app@127.0.0.1/shop")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range config.RuntimeParams {
		if strings.Contains(name+value, "leasehold") {
			t.Fatalf("pgx reads PGOPTIONS now: update docs/how-to/fence/unmodified-programs.md (%s=%s)", name, value)
		}
	}
}
