package leaderelection_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"leasehold"
	"leasehold/internal/servertest"
	"leasehold/leaderelection"
)

func TestAnElectorCallsBackAsClientGoDoes(t *testing.T) {
	server := servertest.Start(t)
	newElector := func(holder string, started, stopped chan string, newLeader func(string)) *leaderelection.LeaderElector {
		client, err := leasehold.New(leasehold.WithServers(server.Addr), leasehold.WithHolder(holder), leasehold.WithSessionTTL(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Client: client, Name: "jobs/leader", ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					if token, ok := leaderelection.Token(ctx); !ok || token == "" {
						t.Error("the context has no token")
					}
					started <- holder
					<-ctx.Done()
				},
				OnStoppedLeading: func() { stopped <- holder },
				OnNewLeader:      newLeader,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return elector
	}
	started, stopped := make(chan string, 4), make(chan string, 4)
	var seen atomic.Value
	a := newElector("a", started, stopped, nil)
	b := newElector("b", started, stopped, func(identity string) { seen.Store(identity) })
	ctxA, stopA := context.WithCancel(context.Background())
	go a.Run(ctxA)
	if holder := <-started; holder != "a" || !a.IsLeader() {
		t.Fatal(holder)
	}
	ctxB, stopB := context.WithCancel(context.Background())
	go b.Run(ctxB)
	servertest.Eventually(t, "b observes a", func() bool { return b.GetLeader() == "a" && seen.Load() == "a" })
	if b.IsLeader() {
		t.Fatal("two leaders")
	}
	stopA()
	if holder := <-stopped; holder != "a" || a.IsLeader() {
		t.Fatal(holder)
	}
	if holder := <-started; holder != "b" {
		t.Fatal(holder)
	}
	servertest.Eventually(t, "b observes itself", func() bool { return seen.Load() == "b" })
	stopB()
	if holder := <-stopped; holder != "b" {
		t.Fatal(holder)
	}
}

func TestAnInvalidConfigurationIsRefused(t *testing.T) {
	if _, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{}); err == nil {
		t.Fatal("no error")
	}
}
