package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold"
	"leasehold/internal/servertest"
)

// Ends of sessions, replies that are lost or unreadable, panics, and many requests at once.

func waiters(t testing.TB, client *leasehold.Client, resource string) uint64 {
	t.Helper()
	info, err := client.Show(context.Background(), resource)
	if err != nil {
		t.Fatal(err)
	}
	return info.Waiters
}

func TestAWaitOutlivesTheEndOfItsSession(t *testing.T) {
	server := servertest.Start(t)
	client, other := newClient(t, server.Addr), newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	holder := acquire(t, other, "x")
	lost := acquire(t, client, "y")
	granted := make(chan error, 1)
	go func() {
		lease, err := client.Acquire(context.Background(), "x", leasehold.WithWait(time.Hour))
		if err == nil && lease.State() != leasehold.Held {
			err = lease.Err()
		}
		granted <- err
	}()
	servertest.Eventually(t, "the wait is queued", func() bool { return waiters(t, other, "x") == 1 })
	ended := client.SessionID()
	server.EndSession(ended)
	servertest.Eventually(t, "the wait is queued in another session", func() bool {
		return client.SessionID() != ended && client.SessionID() != "" && waiters(t, other, "x") == 1
	})
	within(t, "the lease of the ended session is lost", lost.Lost())
	if err := holder.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

func TestTheEndOfASessionIsNoticedLongBeforeItsNextRenewal(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr, leasehold.WithSessionTTL(10*time.Minute))
	// At once, and when the stream of its events is open.
	for _, delay := range []time.Duration{0, time.Second} {
		lease := acquire(t, client, "x")
		time.Sleep(delay)
		server.EndSession(client.SessionID())
		within(t, "the lease is lost", lease.Lost())
	}
}

func TestAnEndedSessionIsReplacedByTheNextRequest(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr)
	acquire(t, client, "x")
	server.EndSession(client.SessionID())
	acquire(t, client, "x")
	server.EndSession(client.SessionID())
	if _, err := client.Queue("mail").Send(context.Background(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	server.EndSession(client.SessionID())
	if err := client.SetCapacity(context.Background(), "seats", 3); err != nil {
		t.Fatal(err)
	}
}

func TestAReplyThatIsCutInItsBodyIsALostReply(t *testing.T) {
	server := servertest.Start(t)
	proxy := servertest.StartProxy(t, server.Addr)
	client, other := newClient(t, proxy.Addr), newClient(t, server.Addr)
	acquire(t, client, "warm-up")
	proxy.SetFault(servertest.Shorten, ":acquire", 1)
	lease := acquire(t, client, "x")
	if proxy.Faults() != 1 {
		t.Fatal("no reply was cut")
	}
	info, err := other.Show(context.Background(), "x")
	if err != nil || len(info.Leases) != 1 || info.Leases[0].TokenNumber != fmt.Sprint(lease.TokenNumber()) {
		t.Fatalf("%+v: %v", info, err)
	}
}

func TestAGatewayMayHavePassedARequestOn(t *testing.T) {
	for status, want := range map[int]leasehold.Code{502: leasehold.CodeIndeterminate, 503: leasehold.CodeUnavailable, 504: leasehold.CodeIndeterminate} {
		if problem := leasehold.ParseProblem(status, []byte("<html>")); problem.Code != want {
			t.Errorf("%d: %v", status, problem)
		}
	}
}

func TestNoTimeOfAReplyEndsTheProgramOrMakesALeaseUnbounded(t *testing.T) {
	for _, ms := range []string{"-1", "-9223372036854775808", "9223372036854775807", "1e300", `"soon"`, "null"} {
		renewed := make(chan struct{}, 1024)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			times := fmt.Sprintf(`"ttl_ms":%[1]s,"remaining_ms":%[1]s,"drain_ms":%[1]s,"overlaps_ms":%[1]s`, ms)
			switch {
			case strings.HasSuffix(r.URL.Path, "/sessions"):
				fmt.Fprint(w, `{"session":"1.0","secret":"s","ttl_ms":300,"remaining_ms":300}`)
			case strings.HasSuffix(r.URL.Path, ":acquire"):
				fmt.Fprint(w, `{"resource":"x","lease":"1.0","holder":"w","token":"lh9-new","token_number":"7",`+times+`}`)
			default:
				fmt.Fprint(w, `{"session":"1.0","resource":"x","lease":"1.0","token_number":"7",`+times+`}`)
				select {
				case renewed <- struct{}{}:
				default:
				}
			}
		}))
		client := newClient(t, server.URL, leasehold.WithSessionTTL(300*time.Millisecond), leasehold.WithRequestTimeout(time.Second))
		lease, err := client.Acquire(context.Background(), "x")
		for range 3 {
			<-renewed
		}
		if err == nil && lease.Remaining() > 300*time.Millisecond {
			t.Errorf("%s: %v remain", ms, lease.Remaining())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = client.CloseContext(ctx)
		cancel()
		server.CloseClientConnections()
		server.Close()
	}
}

func TestWorkThatPanicsReleasesItsLease(t *testing.T) {
	server := servertest.Start(t)
	client, other := newClient(t, server.Addr), newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	panics := func(run func()) {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		run()
	}
	fails := func(context.Context, *leasehold.Lease) error { panic("a bug") }
	panics(func() { _ = client.Do(context.Background(), "x", fails) })
	acquire(t, other, "x", leasehold.WithWait(time.Minute))
	panics(func() { _ = client.Election("leader").Lead(context.Background(), fails) })
	acquire(t, other, "leader", leasehold.WithWait(time.Minute))
}

func TestWorkThatOutlivesItsLeaseFails(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr)
	work := func(result error) error {
		return client.Do(context.Background(), "x", func(ctx context.Context, lease *leasehold.Lease) error {
			server.Run("revoke", "x", "--comment", "a test")
			within(t, "the lease is lost", lease.Lost())
			return result
		})
	}
	var lost *leasehold.Error
	if err := work(nil); !errors.As(err, &lost) || lost.State != leasehold.LostRevoked {
		t.Fatal("the loss was hidden:", err)
	}
	mine := errors.New("mine")
	if err := work(mine); !errors.Is(err, mine) || !errors.As(err, &lost) {
		t.Fatal("an error was hidden:", err)
	}
	// A release by the work itself is no loss.
	err := client.Do(context.Background(), "y", func(_ context.Context, lease *leasehold.Lease) error { return lease.Release() })
	if err != nil {
		t.Fatal(err)
	}
}

func TestAClosedClientLeavesNoGoroutine(t *testing.T) {
	server := servertest.Start(t)
	before := runtime.NumGoroutine()
	for range 5 {
		var handled atomic.Int64
		client := newClient(t, server.Addr, leasehold.WithEventHandler(func(leasehold.ClientEvent) { handled.Add(1) }))
		lease := acquire(t, client, "x")
		ctx, cancel := lease.WithContext(context.Background())
		defer cancel()
		if err := client.Close(); err != nil || ctx.Err() == nil {
			t.Fatal(err)
		}
		servertest.Eventually(t, "the events are passed on", func() bool { return handled.Load() >= 1 })
	}
	servertest.Eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestASlowReplyDelaysNoOtherRenewal(t *testing.T) {
	server := servertest.Start(t)
	proxy := servertest.StartProxy(t, server.Addr)
	client := newClient(t, proxy.Addr, leasehold.WithSessionTTL(12*time.Second))
	lease := acquire(t, client, "x", leasehold.WithTTL(2*time.Second))
	ctx := lease.Context()
	proxy.SetFault(servertest.Hold, client.SessionID()+":renew", 1<<30)
	// The second renewal of the session is sent when the first one has waited for longer than the ttl of the lease.
	servertest.Eventually(t, "two renewals of the session have no reply", func() bool { return proxy.Faults() >= 2 })
	if ctx.Err() != nil {
		t.Fatal("the lease waited for the session:", context.Cause(ctx))
	}
}

func TestThousandsOfAcquiresOfOneClientSucceed(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr, leasehold.WithRequestTimeout(time.Minute))
	var group sync.WaitGroup
	var mu sync.Mutex
	numbers := map[uint64]bool{}
	for i := range 3000 {
		group.Add(1)
		go func() {
			defer group.Done()
			lease, err := client.Acquire(context.Background(), fmt.Sprintf("burst/%d", i))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			numbers[lease.TokenNumber()] = true
			mu.Unlock()
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	if len(numbers) != 3000 {
		t.Fatal(len(numbers))
	}
}

func TestHundredsOfGoroutinesTakeTurns(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr, leasehold.WithRequestTimeout(time.Minute))
	var group sync.WaitGroup
	var running, turns atomic.Int64
	for range 300 {
		group.Add(1)
		go func() {
			defer group.Done()
			err := client.Do(context.Background(), "x", func(context.Context, *leasehold.Lease) error {
				if running.Add(1) != 1 {
					t.Error("two at once")
				}
				runtime.Gosched()
				running.Add(-1)
				turns.Add(1)
				return nil
			}, leasehold.WithWait(time.Hour))
			if err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	if turns.Load() != 300 {
		t.Fatal(turns.Load())
	}
}

func TestAWaitThatTheServerHasForgottenIsMadeAgain(t *testing.T) {
	server := servertest.Start(t)
	proxy := servertest.StartProxy(t, server.Addr)
	client, other := newClient(t, proxy.Addr), newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	holder := acquire(t, other, "x")
	granted := make(chan error, 1)
	go func() {
		_, err := client.Acquire(context.Background(), "x", leasehold.WithWait(time.Hour))
		granted <- err
	}()
	servertest.Eventually(t, "the wait is queued", func() bool { return waiters(t, other, "x") == 1 })
	// A server remembers the last 512 requests of a session.
	for i := range 600 {
		acquire(t, client, fmt.Sprintf("later/%d", i))
	}
	proxy.Cut()
	if err := holder.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	if left := waiters(t, other, "x"); left != 0 {
		t.Fatalf("%d waits are left", left)
	}
}
