package leasehold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/internal/servertest"
)

// The quickstart of README.md, run as a program of its own.

func TestTheQuickstartRunsInAnEmptyModuleOutsideOfTheTree(t *testing.T) {
	server := servertest.Start(t)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(readme), "```go\n")
	program, _, closed := strings.Cut(program, "```")
	if !found || !closed {
		t.Fatal("README.md has no program")
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{
		"main.go": program,
		"go.mod":  "module example.com/quickstart\n\ngo 1.22\n\nrequire leasehold v0.1.0\n\nreplace leasehold => " + here + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("go", "run", ".")
	command.Dir = dir
	command.Env = append(os.Environ(), "LEASEHOLD_ADDR="+server.Addr, "GOFLAGS=-mod=mod", "GOPROXY=off")
	output, err := command.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(output), "held under lh1-") {
		t.Fatalf("%v: %s", err, output)
	}
}
