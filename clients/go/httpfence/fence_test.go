package httpfence_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold"
	"leasehold/httpfence"
	"leasehold/internal/servertest"
)

func post(t *testing.T, source interface{ Token() string }, url string) (int, error) {
	t.Helper()
	client := &http.Client{Transport: httpfence.NewTransport(source, nil)}
	response, err := client.Post(url, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, httpfence.CheckResponse(response)
}

func TestAProblemOfTheServiceItselfIsNoRefusal(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"type":"about:blank","status":500,"code":"STALE_TOKEN","title":"mine"}`))
	}))
	defer service.Close()
	if status, err := post(t, text("lh1"), service.URL); status != 500 || err != nil {
		t.Fatal(status, err)
	}
}

type text string

func (t text) Token() string { return string(t) }

func TestAServiceRefusesAStaleTokenAlsoAfterARestart(t *testing.T) {
	server := servertest.Start(t)
	client, err := leasehold.New(leasehold.WithServers(server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	old, err := client.Acquire(context.Background(), "jobs/settle")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "settle.marks")
	if _, err := httpfence.Open(path, server.Cluster, "jobs/settle"); err == nil {
		t.Fatal("a missing mark must be refused")
	}
	if err := httpfence.Arm(path, server.Cluster, "jobs/settle"); err != nil {
		t.Fatal(err)
	}
	if err := httpfence.Arm(path, server.Cluster, "jobs/settle"); !errors.Is(err, leasehold.ErrConflict) {
		t.Fatal(err)
	}
	fence, err := httpfence.Open(path, server.Cluster, "jobs/settle", httpfence.WithClaimTimeout(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := httpfence.Open(path, server.Cluster, "jobs/settle"); !errors.Is(err, leasehold.ErrConflict) {
		t.Fatal("two processes on one mark file:", err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	applied := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			<-leave
		}
		applied++
	})
	service := httptest.NewServer(fence.Wrap(handler))
	defer service.Close()
	if status, err := post(t, old, service.URL+"/"); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	if response, err := http.Get(service.URL); err != nil || response.StatusCode != 200 {
		t.Fatal("reads pass", err)
	}
	for reason, token := range map[string]string{"absent": "", "shape": "x", "checksum": strings.Replace(old.Token(), "-w0", "-w1", 1)} {
		status, err := post(t, text(token), service.URL+"/")
		var problem *leasehold.Error
		if !errors.As(err, &problem) || status != 400 || problem.Code != leasehold.CodeTokenInvalid || problem.Reason != reason {
			t.Fatal(reason, status, err)
		}
	}
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	next, err := client.Acquire(context.Background(), "jobs/settle")
	if err != nil {
		t.Fatal(err)
	}
	// A claim waits for the request in flight, and changes nothing if that takes too long.
	slow := make(chan struct{})
	go func() { defer close(slow); _, _ = post(t, old, service.URL+"/slow") }()
	<-entered
	if status, err := post(t, next, service.URL+httpfence.ClaimPath); status != 503 || !errors.Is(err, leasehold.ErrUnavailable) {
		t.Fatal(status, err)
	}
	if fence.Mark() != old.TokenNumber() {
		t.Fatal("a claim that failed changed the mark")
	}
	close(leave)
	<-slow
	if status, err := post(t, next, service.URL+httpfence.ClaimPath); status != 204 || err != nil {
		t.Fatal(status, err)
	}
	before := applied
	status, err := post(t, old, service.URL+"/")
	var stale *leasehold.Error
	if status != 412 || !errors.Is(err, leasehold.ErrStaleToken) || !errors.As(err, &stale) || stale.Mark != next.TokenNumber() || applied != before {
		t.Fatal(status, err)
	}
	if err := fence.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := httpfence.Open(path, server.Cluster, "jobs/settle")
	if err != nil || again.Mark() != next.TokenNumber() {
		t.Fatal(err)
	}
	_ = again.Close()
	if _, err := httpfence.Open(path, server.Cluster, "jobs/other"); !errors.Is(err, leasehold.ErrConflict) {
		t.Fatal("a foreign mark file:", err)
	}
}
