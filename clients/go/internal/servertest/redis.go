package servertest

import (
	"net"
	"os/exec"
	"testing"
	"time"
)

// StartRedis starts a Redis server and returns the path of its unix socket.
func StartRedis(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	socket := dir + "/redis.sock"
	command := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "yes",
		"--appendfsync", "always")
	command.Dir = dir
	process := start(t, command)
	Eventually(t, "Redis accepts connections", func() bool {
		select {
		case <-process.ended:
			t.Fatalf("redis-server ended: %s", process.output)
		default:
		}
		connection, err := net.DialTimeout("unix", socket, time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	return socket
}
