package redisfence_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"leasehold"
	"leasehold/internal/servertest"
	"leasehold/redisfence"
)

func TestRedisRefusesAStaleToken(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := servertest.Start(t)
	db := redis.NewClient(&redis.Options{Network: "unix", Addr: servertest.StartRedis(t)})
	defer db.Close()
	client, err := leasehold.New(leasehold.WithServers(server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	acquire := func() (*leasehold.Lease, *redisfence.Fence) {
		lease, err := client.Acquire(ctx, "jobs/settle")
		if err != nil {
			t.Fatal(err)
		}
		return lease, redisfence.New(lease)
	}
	old, fence := acquire()
	if err := fence.Claim(ctx, db); err == nil {
		t.Fatal("claimed without functions")
	}
	for range 2 {
		if err := redisfence.Install(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	var missing *leasehold.Error
	if err := fence.Claim(ctx, db); !errors.As(err, &missing) || missing.Code != leasehold.CodeStorageFailed || missing.Reason != "missing" {
		t.Fatal(err)
	}
	for range 2 {
		if err := redisfence.Arm(ctx, db, server.Cluster, "jobs/settle", 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := fence.Claim(ctx, db); err != nil {
		t.Fatal(err)
	}
	paid := "{jobs/settle}:paid:7"
	if _, err := fence.Write(ctx, db, []string{paid}, "SET", paid, 1200); err != nil {
		t.Fatal(err)
	}
	if reply, err := fence.Write(ctx, db, []string{paid}, "GET", paid); err != nil || reply != "1200" {
		t.Fatal(reply, err)
	}
	for want, applied := range []bool{true, false} {
		got, err := fence.WriteOnce(ctx, db, 1, []string{paid}, "INCRBY", paid, 1)
		if err != nil || got != applied {
			t.Fatal(want, got, err)
		}
	}
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	next, successor := acquire()
	if err := successor.Claim(ctx, db); err != nil {
		t.Fatal(err)
	}
	_, err = fence.Write(ctx, db, []string{paid}, "SET", paid, 1)
	var stale *leasehold.Error
	if !errors.Is(err, leasehold.ErrStaleToken) || !errors.As(err, &stale) || stale.Presented != old.TokenNumber() || stale.Mark != next.TokenNumber() {
		t.Fatal(err)
	}
	if value := db.Get(ctx, paid).Val(); value != "1201" {
		t.Fatal(value)
	}
	if _, err := successor.Write(ctx, db, nil, "FLUSHALL"); err == nil {
		t.Fatal("a command that removes the mark")
	}
}

func TestTheFunctionsAreThoseOfTheRepository(t *testing.T) {
	want := "#!lua name=leasehold\n"
	for _, file := range []string{"fence.lua", "functions.lua"} {
		text, err := os.ReadFile(filepath.Join(servertest.Repository(), "crates/fence/src/redis", file))
		if err != nil {
			t.Fatal(err)
		}
		want += string(text)
	}
	got, err := os.ReadFile("leasehold.lua")
	if err != nil || string(got) != want {
		t.Fatal("leasehold.lua differs from crates/fence/src/redis; copy fence.lua and functions.lua into it", err)
	}
}
