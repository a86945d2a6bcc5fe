package servertest

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Postgres is a real PostgreSQL server on a unix socket, with the schema of the fence.
type Postgres struct {
	// URL connects as the superuser.
	URL string

	t   testing.TB
	dir string
}

// StartPostgres starts a server and installs the fence.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	// The path of a unix socket is short, and marks need no disk in a test.
	dir, err := os.MkdirTemp("/dev/shm", "leasehold-go-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	attributes := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		// PostgreSQL refuses root.
		owner, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	initdb := exec.Command(postgresProgram(t, "initdb"), "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", "leasehold",
		"-D", dir+"/data")
	initdb.Dir, initdb.SysProcAttr = dir, attributes
	if output, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, output)
	}
	server := exec.Command(postgresProgram(t, "postgres"), "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=")
	server.Dir, server.SysProcAttr = dir, attributes
	process := start(t, server)
	// Ends the backends too, before the process is killed.
	t.Cleanup(func() { process.stop(syscall.SIGQUIT) })
	p := &Postgres{t: t, dir: dir, URL: "postgres://leasehold@/postgres?host=" + dir}
	Eventually(t, "PostgreSQL accepts connections", func() bool {
		_, err := p.psql("-c", "SELECT 1")
		return err == nil
	})
	if output, err := p.psql("-v", "ON_ERROR_STOP=1", "-f", filepath.Join(Repository(), "crates/fence/src/postgres/install.sql")); err != nil {
		t.Fatalf("install: %s", output)
	}
	return p
}

// Repository returns the root of the repository, which has the schema and the functions of the fences.
func Repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../..")
}

// SQL runs statements as the superuser and returns the unaligned output.
func (p *Postgres) SQL(statements string) string {
	p.t.Helper()
	output, err := p.psql("-v", "ON_ERROR_STOP=1", "-c", statements)
	if err != nil {
		p.t.Fatalf("psql: %s", output)
	}
	return strings.TrimSpace(output)
}

func (p *Postgres) psql(args ...string) (string, error) {
	command := exec.Command("psql", append([]string{"-X", "-q", "-A", "-t", "-h", p.dir, "-U", "leasehold", "-d", "postgres"}, args...)...)
	command.Dir = "/"
	output, err := command.CombinedOutput()
	return string(output), err
}

func postgresProgram(t testing.TB, name string) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s is missing; install the Debian package postgresql", name)
		}
		return path
	}
	return found[len(found)-1]
}
