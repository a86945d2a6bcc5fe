package servertest

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Server is a real Leasehold server.
type Server struct {
	// Addr is its address, which stays over restarts.
	Addr string
	// Cluster is the id that its tokens contain.
	Cluster string

	t       testing.TB
	dir     string
	args    []string
	process *process
}

// Binary returns the path of the server's binary.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("LEASEHOLD_BIN")
	if path == "" {
		t.Fatal("LEASEHOLD_BIN is not set; build the server with `cargo build -p leasehold-cli` and set it to target/debug/leasehold")
	}
	return path
}

var serving = regexp.MustCompile(`serving on (?:https?://)?(\S+?),.*cluster ([0-9a-f]{16})`)

// Start starts a server with further arguments of `leasehold serve`.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), args: args}
	s.launch("127.0.0.1:0")
	return s
}

func (s *Server) launch(listen string) {
	s.t.Helper()
	args := append([]string{"serve", "--listen", listen, "--data", s.dir + "/data"}, s.args...)
	command := exec.Command(Binary(s.t), args...)
	command.Dir = s.dir
	// A server must not inherit the settings of a client.
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "LEASEHOLD_") {
			command.Env = append(command.Env, variable)
		}
	}
	s.process = start(s.t, command)
	Eventually(s.t, "the server serves", func() bool {
		select {
		case <-s.process.ended:
			s.t.Fatalf("the server ended: %s", s.process.output)
		default:
		}
		found := serving.FindStringSubmatch(s.process.output.String())
		if found != nil {
			s.Addr, s.Cluster = found[1], found[2]
		}
		return found != nil
	})
}

// Socket returns the path of the server's unix socket.
func (s *Server) Socket() string { return s.dir + "/data/leasehold.sock" }

// EndSession ends a session, as an operator does. Its client is not notified.
func (s *Server) EndSession(id string) {
	s.t.Helper()
	response, err := http.Post("http://"+s.Addr+"/v1/sessions/"+id+":close", "application/json", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		s.t.Fatalf("the session was not closed: %s", response.Status)
	}
}

// Kill ends the server without a shutdown.
func (s *Server) Kill() { s.process.stop(syscall.SIGKILL) }

// Restart starts a server that was killed, at the same address with the same data.
func (s *Server) Restart() { s.t.Helper(); s.launch(s.Addr) }

// Pause stops the server with SIGSTOP; Resume continues it.
func (s *Server) Pause()  { s.process.signal(syscall.SIGSTOP) }
func (s *Server) Resume() { s.process.signal(syscall.SIGCONT) }

// Run runs the command line against this server, and returns its output.
func (s *Server) Run(args ...string) string {
	s.t.Helper()
	command := exec.Command(Binary(s.t), args...)
	command.Env = append(os.Environ(), "LEASEHOLD_ADDR="+s.Addr)
	output, err := command.CombinedOutput()
	if err != nil {
		s.t.Fatalf("leasehold %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return strings.TrimSpace(string(output))
}
