// Package servertest starts real servers for tests: Leasehold, PostgreSQL and Redis, each on a free port in a temporary directory.
package servertest

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout is how long a server may take to accept connections.
const startTimeout = 60 * time.Second

// process is a child that ends with the test.
type process struct {
	command *exec.Cmd
	output  *lockedBuffer
	ended   chan struct{}
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func start(t testing.TB, command *exec.Cmd) *process {
	t.Helper()
	p := &process{command: command, output: &lockedBuffer{}, ended: make(chan struct{})}
	command.Stdout, command.Stderr = p.output, p.output
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	if err := command.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", command.Path, err)
	}
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() { p.signal(syscall.SIGKILL); <-p.ended })
	return p
}

func (p *process) signal(signal os.Signal) { _ = p.command.Process.Signal(signal) }

// stop ends the process and waits.
func (p *process) stop(signal os.Signal) {
	p.signal(syscall.SIGCONT)
	p.signal(signal)
	<-p.ended
}

// Eventually waits until a condition holds, and fails the test after a minute.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(startTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", startTimeout, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
