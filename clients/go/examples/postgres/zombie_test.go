package main

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"leasehold"
	"leasehold/internal/servertest"
	"leasehold/sqlfence"
)

const resource = "jobs/settle"

func start(t *testing.T) (*servertest.Server, *servertest.Postgres, *leasehold.Client) {
	t.Helper()
	server, postgres := servertest.Start(t), servertest.StartPostgres(t)
	postgres.SQL("CREATE TABLE paid (id int, cents int); SELECT leasehold.arm('" + resource + "', '" + server.Cluster + "'); " +
		"SELECT leasehold.protect('paid', '" + resource + "')")
	client, err := leasehold.New(leasehold.WithServers(server.Addr), leasehold.WithHolder("successor"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return server, postgres, client
}

func TestAWorkerThatWasPausedPastItsTTLCannotWrite(t *testing.T) {
	server, postgres, client := start(t)
	binary := filepath.Join(t.TempDir(), "worker")
	if output, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	worker := exec.Command(binary, postgres.URL)
	worker.Env = append(os.Environ(), "LEASEHOLD_ADDR="+server.Addr)
	output, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var failure strings.Builder
	worker.Stderr = &failure
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Process.Kill() })
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "about to pay 3" {
	}
	// Paused inside the work, before the third write.
	if err := worker.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lease, err := client.Acquire(ctx, resource, leasehold.WithWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", postgres.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := sqlfence.New(lease).Claim(ctx, db); err != nil {
		t.Fatal(err)
	}
	if err := worker.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	err = worker.Wait()
	if err == nil || !strings.Contains(failure.String(), "STALE_TOKEN") {
		t.Fatalf("the worker ended with %v: %s", err, failure.String())
	}
	if rows := postgres.SQL("SELECT max(id) FROM paid"); rows != "2" {
		t.Fatalf("the late write was applied: %s", rows)
	}
}

func TestTheUserCodeOfAFencedWriteIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "func run(")
	body, _, _ = strings.Cut(body, "\n}\n")
	// The signature and the closing brace count too.
	if lines := strings.Count(body, "\n") + 2; lines > 25 {
		t.Fatalf("%d lines", lines)
	}
}

func TestAnyDriverOfDatabaseSQLPresentsTheToken(t *testing.T) {
	_, postgres, client := start(t)
	config, err := pgx.ParseConfig(postgres.URL)
	if err != nil {
		t.Fatal(err)
	}
	pqConnector, err := pq.NewConnector(postgres.URL + "&sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, connector := range map[string]driver.Connector{"pgx": stdlib.GetConnector(*config), "pq": pqConnector} {
		t.Run(name, func(t *testing.T) {
			acquire := func() *leasehold.Lease {
				lease, err := client.Acquire(ctx, resource)
				if err != nil {
					t.Fatal(err)
				}
				return lease
			}
			old := acquire()
			plain, carrying := sql.OpenDB(connector), sqlfence.OpenDB(connector, old)
			defer plain.Close()
			defer carrying.Close()
			fence := sqlfence.New(old)
			if err := fence.Claim(ctx, plain); err != nil {
				t.Fatal(err)
			}
			insert := func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO paid VALUES ($1, $2)", 1, 100)
				return err
			}
			if err := fence.Tx(ctx, plain, insert); err != nil {
				t.Fatal(err)
			}
			if _, err := carrying.ExecContext(ctx, "INSERT INTO paid VALUES (2, 200)"); err != nil {
				t.Fatal(err)
			}
			if _, err := plain.ExecContext(ctx, "INSERT INTO paid VALUES (3, 300)"); !errors.Is(sqlfence.Error(err), leasehold.ErrTokenInvalid) {
				t.Fatal("a write without a token:", err)
			}
			if err := old.Release(); err != nil {
				t.Fatal(err)
			}
			next := acquire()
			if err := sqlfence.New(next).Claim(ctx, plain); err != nil {
				t.Fatal(err)
			}
			var stale *leasehold.Error
			if err := fence.Tx(ctx, plain, insert); !errors.As(err, &stale) || stale.Code != leasehold.CodeStaleToken || stale.Mark != next.TokenNumber() {
				t.Fatal(err)
			}
			if _, err := carrying.ExecContext(ctx, "INSERT INTO paid VALUES (4, 400)"); !errors.Is(sqlfence.Error(err), leasehold.ErrStaleToken) {
				t.Fatal(err)
			}
			if err := next.Release(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
