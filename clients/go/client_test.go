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

// Leases of a client against a real server: acquire, wait, renew, hand off, lose and release, with lost replies and restarts.

func newClient(t testing.TB, addr string, options ...leasehold.Option) *leasehold.Client {
	t.Helper()
	client, err := leasehold.New(append([]leasehold.Option{leasehold.WithServers(addr), leasehold.WithHolder("w-1")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = client.CloseContext(ctx)
	})
	return client
}

func acquire(t testing.TB, client *leasehold.Client, resource string, options ...leasehold.AcquireOption) *leasehold.Lease {
	t.Helper()
	lease, err := client.Acquire(context.Background(), resource, options...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// within waits for a channel, and fails the test after a minute.
func within(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
}

func TestALeaseIsHeldExcludesOthersAndIsReleased(t *testing.T) {
	server := servertest.Start(t)
	a, b := newClient(t, server.Addr), newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	lease := acquire(t, a, "jobs/settle")
	if lease.State() != leasehold.Held || lease.Err() != nil || lease.Remaining() <= 25*time.Second || lease.Remaining() > 30*time.Second {
		t.Fatalf("state %v, remaining %v", lease.State(), lease.Remaining())
	}
	token, err := leasehold.ParseToken(lease.Token())
	if err != nil || token.Number != lease.TokenNumber() || token.ResourceHash != leasehold.ResourceHash("jobs/settle") || token.Cluster != server.Cluster {
		t.Fatalf("token %+v: %v", token, err)
	}
	_, err = b.Acquire(context.Background(), "jobs/settle")
	var busy *leasehold.Error
	if !errors.Is(err, leasehold.ErrBusy) || !errors.As(err, &busy) || busy.Holder != "w-1" || busy.NextStep == "" {
		t.Fatalf("%v", err)
	}
	if none, err := b.TryAcquire(context.Background(), "jobs/settle"); none != nil || err != nil {
		t.Fatalf("%v %v", none, err)
	}
	ctx := lease.Context()
	for range 2 {
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(context.Cause(ctx), leasehold.ErrReleased) || lease.State() != leasehold.Lost {
		t.Fatalf("cause %v, state %v", context.Cause(ctx), lease.State())
	}
	within(t, "lost", lease.Lost())
	if next := acquire(t, b, "jobs/settle"); next.TokenNumber() <= lease.TokenNumber() {
		t.Fatal("a later grant has a lower token")
	}
}

func TestGoroutinesOfOneClientExcludeEachOtherAndAreServedInOrder(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr)
	first := acquire(t, client, "x")
	order := make(chan int, 3)
	var group sync.WaitGroup
	for i := range 3 {
		group.Add(1)
		go func() {
			defer group.Done()
			lease, err := client.Acquire(context.Background(), "x", leasehold.WithWait(time.Minute))
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		}()
		servertest.Eventually(t, "the wait is queued", func() bool {
			info, err := client.Show(context.Background(), "x")
			return err == nil && info.Waiters == uint64(i+1)
		})
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	for want := range 3 {
		if got := <-order; got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
}

func TestACanceledAcquireLeavesNothingBehind(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr)
	holder := acquire(t, client, "x")
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := client.Acquire(ctx, "x", leasehold.WithWait(time.Hour))
		failed <- err
	}()
	waiters := func() uint64 {
		info, err := client.Show(context.Background(), "x")
		if err != nil {
			t.Fatal(err)
		}
		return info.Waiters
	}
	servertest.Eventually(t, "the wait is queued", func() bool { return waiters() == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	servertest.Eventually(t, "the wait is withdrawn", func() bool { return waiters() == 0 })
	if err := holder.Release(); err != nil {
		t.Fatal(err)
	}
	// The withdrawn wait must not be granted.
	other := newClient(t, addrOf(client), leasehold.WithHolder("w-2"))
	acquire(t, other, "x")
}

// addrOf returns the address of a client's server.
func addrOf(client *leasehold.Client) string { return leasehold.ServersOf(client)[0] }

func TestCancelingAtAnyMomentReleasesALateGrant(t *testing.T) {
	server := servertest.Start(t)
	client, other := newClient(t, server.Addr), newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	for i := range 30 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if lease, err := client.Acquire(ctx, "x", leasehold.WithWait(time.Minute)); err == nil {
				_ = lease.Release()
			}
		}()
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		cancel()
		within(t, "the acquire returns", done)
		// Whatever happened, the resource becomes free without an expiry.
		ctx, cancel = context.WithTimeout(context.Background(), 20*time.Second)
		lease, err := other.Acquire(ctx, "x", leasehold.WithWait(19*time.Second))
		cancel()
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALeaseIsKeptWhileTheProgramIsBusy(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr, leasehold.WithSessionTTL(3*time.Second))
	lease := acquire(t, client, "x")
	number, ctx := lease.TokenNumber(), lease.Context()
	// All threads of the program compute for three ttls.
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := uint64(1); !stop.Load(); n++ {
				_ = n * n
			}
		}()
	}
	time.Sleep(9 * time.Second)
	state, cause := lease.State(), context.Cause(ctx)
	stop.Store(true)
	group.Wait()
	if state != leasehold.Held || cause != nil || lease.TokenNumber() != number {
		t.Fatalf("state %v, cause %v", state, cause)
	}
}

func TestALeaseWithATTLOfItsOwnIsRenewed(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr)
	lease := acquire(t, client, "x", leasehold.WithTTL(500*time.Millisecond))
	time.Sleep(1500 * time.Millisecond)
	if err := lease.Check(context.Background()); err != nil || lease.State() != leasehold.Held {
		t.Fatalf("%v: %v", lease.State(), err)
	}
}

func TestWorkIsCanceledAtTheLocalDeadlineAndResumesUnderTheSameToken(t *testing.T) {
	server := servertest.Start(t)
	var events eventLog
	client := newClient(t, server.Addr, leasehold.WithSessionTTL(2*time.Second), leasehold.WithEventHandler(events.add))
	lease := acquire(t, client, "x")
	token, ctx := lease.Token(), lease.Context()
	server.Pause()
	started := time.Now()
	within(t, "the work is canceled", ctx.Done())
	if took := time.Since(started); took > 2*time.Second {
		t.Fatalf("canceled after %v; the ttl is 2s", took)
	}
	if !errors.Is(context.Cause(ctx), leasehold.ErrSuspended) || lease.State() != leasehold.Suspended || lease.Remaining() != 0 {
		t.Fatalf("cause %v, state %v", context.Cause(ctx), lease.State())
	}
	select {
	case <-lease.Lost():
		t.Fatal("a suspended lease is not lost")
	default:
	}
	server.Resume()
	servertest.Eventually(t, "the lease is held again", func() bool { return lease.State() == leasehold.Held })
	if lease.Token() != token || ctx.Err() == nil || lease.Context().Err() != nil {
		t.Fatal("work that was canceled must stay canceled, and new work runs under the same token")
	}
	servertest.Eventually(t, "both changes are reported", func() bool { return events.has("suspended") && events.has("resumed") })
}

type eventLog struct {
	mu    sync.Mutex
	kinds []string
}

func (l *eventLog) add(event leasehold.ClientEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds = append(l.kinds, event.Kind)
}

func (l *eventLog) has(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, known := range l.kinds {
		if known == kind {
			return true
		}
	}
	return false
}

// jumpClock is the system clock plus what a test adds, as after a suspend.
type jumpClock struct{ ahead atomic.Int64 }

func (c *jumpClock) Now() time.Duration {
	return leasehold.SystemClock().Now() + time.Duration(c.ahead.Load())
}

func TestASuspendOfTheMachineCancelsTheWork(t *testing.T) {
	server := servertest.Start(t)
	clock := &jumpClock{}
	client := newClient(t, server.Addr, leasehold.WithClock(clock))
	lease := acquire(t, client, "x")
	ctx := lease.Context()
	clock.ahead.Store(int64(time.Minute))
	if lease.State() == leasehold.Held || lease.Remaining() != 0 {
		t.Fatal("held by a clock that says otherwise")
	}
	within(t, "the work is canceled", ctx.Done())
	// The server granted more time, so the lease is held again.
	servertest.Eventually(t, "the lease is renewed", func() bool { return lease.State() == leasehold.Held })
}

func TestALeaseSurvivesARestartOfTheServer(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr, leasehold.WithSessionTTL(5*time.Second))
	lease := acquire(t, client, "x")
	server.Kill()
	server.Restart()
	if err := lease.Check(context.Background()); err != nil || lease.State() != leasehold.Held {
		t.Fatalf("%v: %v", lease.State(), err)
	}
}

func TestTheEndOfTheSessionEndsItsLeases(t *testing.T) {
	server := servertest.Start(t)
	proxy := servertest.StartProxy(t, server.Addr)
	client, other := newClient(t, proxy.Addr, leasehold.WithSessionTTL(time.Second)), newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	lease := acquire(t, client, "x")
	proxy.SetDown(true)
	if next := acquire(t, other, "x", leasehold.WithWait(time.Minute)); lease.State() == leasehold.Held || next.Release() != nil {
		t.Fatal("two holders at once")
	}
	proxy.SetDown(false)
	within(t, "the lease is lost", lease.Lost())
	var lost *leasehold.Error
	if !errors.As(lease.Err(), &lost) || lost.State != leasehold.LostExpired || lost.Reason != "session" {
		t.Fatal(lease.Err())
	}
	if !errors.As(context.Cause(lease.Context()), &lost) {
		t.Fatal(context.Cause(lease.Context()))
	}
	// The next acquire opens another session.
	servertest.Eventually(t, "a new lease", func() bool {
		_, err := client.Acquire(context.Background(), "x")
		return err == nil
	})
}

func TestARevokedLeaseIsLostWithItsReason(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr, leasehold.WithSessionTTL(2*time.Second))
	lease := acquire(t, client, "x")
	ctx := lease.Context()
	server.Run("revoke", "x", "--comment", "a test")
	within(t, "the lease is lost", lease.Lost())
	var lost *leasehold.Error
	if !errors.As(lease.Err(), &lost) || lost.State != leasehold.LostRevoked || lost.Reason != "operator" {
		t.Fatalf("%v", lease.Err())
	}
	if !errors.Is(context.Cause(ctx), leasehold.ErrLeaseLost) {
		t.Fatal(context.Cause(ctx))
	}
	if err := lease.Release(); !errors.As(err, &lost) || lost.State != leasehold.LostRevoked {
		t.Fatalf("the release of a revoked lease is no success: %v", err)
	}
	unaware := acquire(t, client, "y")
	server.Run("revoke", "y", "--comment", "a test")
	if err := unaware.Release(); !errors.As(err, &lost) || lost.State != leasehold.LostRevoked {
		t.Fatalf("the release of a revoked lease is no success: %v", err)
	}
}

func TestALostReplyIsResolvedToTheSameGrant(t *testing.T) {
	server := servertest.Start(t)
	proxy := servertest.StartProxy(t, server.Addr)
	client := newClient(t, proxy.Addr)
	acquire(t, client, "warm-up")
	proxy.DropReplies(true)
	granted := make(chan *leasehold.Lease, 1)
	go func() {
		lease, err := client.Acquire(context.Background(), "x")
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	}()
	other := newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	var number string
	servertest.Eventually(t, "the request is granted", func() bool {
		info, err := other.Show(context.Background(), "x")
		if err == nil && len(info.Leases) == 1 {
			number = info.Leases[0].TokenNumber
		}
		return number != ""
	})
	proxy.DropReplies(false)
	lease := <-granted
	if lease == nil || fmt.Sprint(lease.TokenNumber()) != number {
		t.Fatalf("another grant than %s", number)
	}
}

func TestAnUnknownOutcomeIsResolvedLater(t *testing.T) {
	server := servertest.Start(t)
	proxy := servertest.StartProxy(t, server.Addr)
	client := newClient(t, proxy.Addr)
	acquire(t, client, "warm-up")
	proxy.DropReplies(true)
	_, err := client.Acquire(context.Background(), "x", leasehold.WithTimeout(500*time.Millisecond))
	var unknown *leasehold.UnknownOutcomeError
	if !errors.As(err, &unknown) || unknown.Err.RequestID == "" || !unknown.Err.IsOutcomeUnknown() {
		t.Fatalf("%v", err)
	}
	proxy.DropReplies(false)
	lease, err := unknown.Resolve(context.Background())
	if err != nil || lease.State() != leasehold.Held {
		t.Fatalf("%v", err)
	}
	info, err := client.Show(context.Background(), "x")
	if err != nil || len(info.Leases) != 1 || info.Leases[0].TokenNumber != fmt.Sprint(lease.TokenNumber()) {
		t.Fatalf("%+v: %v", info, err)
	}
}

func TestAServerThatIsDownIsAnErrorWithANextStep(t *testing.T) {
	client := newClient(t, "127.0.0.1:1", leasehold.WithRequestTimeout(200*time.Millisecond))
	_, err := client.Acquire(context.Background(), "x")
	var problem *leasehold.Error
	if !errors.As(err, &problem) || problem.Code != leasehold.CodeUnavailable || !problem.IsRetryable() || problem.NextStep == "" {
		t.Fatalf("%v", err)
	}
}

func TestInvalidInputNamesTheFieldBeforeAnythingIsSent(t *testing.T) {
	client := newClient(t, "127.0.0.1:1")
	for field, option := range map[string]leasehold.AcquireOption{
		"wait":     leasehold.WithWait(25 * time.Hour),
		"ttl":      leasehold.WithTTL(time.Minute),
		"slots":    leasehold.Slots(0),
		"units":    leasehold.Units(0),
		"metadata": leasehold.WithMetadata(strings.Repeat("x", 4097)),
		"max_hold": leasehold.WithMaxHold(time.Millisecond),
		"progress": leasehold.RequireProgress(time.Millisecond),
	} {
		_, err := client.Acquire(context.Background(), "x", option)
		var problem *leasehold.Error
		if !errors.As(err, &problem) || problem.Code != leasehold.CodeInvalidArgument || problem.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, addr := range []string{"", "host", ":7421", "host:0", "host:70000", "ftp://host:1", "unix:", "[::1:7421", "a:1/x"} {
		_, err := leasehold.New(leasehold.WithServers(addr))
		var problem *leasehold.Error
		if !errors.As(err, &problem) || problem.Code != leasehold.CodeConfig || problem.Key != "addr" {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestSharedSlotsUnitsAndSeveralResources(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr)
	readers := []*leasehold.Lease{acquire(t, client, "book", leasehold.Shared()), acquire(t, client, "book", leasehold.Shared())}
	if _, ok := readers[0].Slot(); ok {
		t.Fatal("a shared lease has no slot")
	}
	if _, err := client.Acquire(context.Background(), "book"); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for range 3 {
		slot, ok := acquire(t, client, "gpu", leasehold.Slots(3)).Slot()
		seen[slot] = ok
	}
	if len(seen) != 3 {
		t.Fatalf("slots %v", seen)
	}
	if _, err := client.Acquire(context.Background(), "gpu", leasehold.Slots(3)); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	if err := client.SetCapacity(context.Background(), "seats", 10); err != nil {
		t.Fatal(err)
	}
	seats := acquire(t, client, "seats", leasehold.Units(7))
	if _, err := client.Acquire(context.Background(), "seats", leasehold.Units(4)); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	if err := seats.Resize(context.Background(), 6); err != nil {
		t.Fatal(err)
	}
	acquire(t, client, "seats", leasehold.Units(4))
	if err := seats.Confirm(context.Background()); err != nil {
		t.Fatal(err)
	}
	all, err := client.AcquireAll(context.Background(), []leasehold.Requirement{{Resource: "a"}, {Resource: "b", Shared: true}, {Resource: "seats2", Units: 1}})
	if err != nil || len(all) != 3 || all[1].Resource() != "b" {
		t.Fatalf("%v %v", all, err)
	}
	_, err = client.AcquireAll(context.Background(), []leasehold.Requirement{{Resource: "c"}, {Resource: "a"}})
	if !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	// All or nothing.
	acquire(t, client, "c")
}

func TestAHandoffDrainsThePredecessor(t *testing.T) {
	server := servertest.Start(t)
	a, b := newClient(t, server.Addr), newClient(t, server.Addr, leasehold.WithHolder("w-2"))
	for _, mode := range []leasehold.HandoffMode{leasehold.Gap, leasehold.Overlap} {
		old := acquire(t, a, "x/"+string(mode))
		next := make(chan *leasehold.Lease, 1)
		go func() {
			lease, err := b.Acquire(context.Background(), "x/"+string(mode), leasehold.WithWait(time.Minute), leasehold.WithActor("heir"))
			if err != nil {
				t.Error(err)
			}
			next <- lease
		}()
		servertest.Eventually(t, "the successor waits", func() bool {
			info, err := a.Show(context.Background(), "x/"+string(mode))
			return err == nil && info.Waiters == 1
		})
		if err := old.Handoff(context.Background(), leasehold.WithMode(mode), leasehold.ToHolder("heir")); err != nil {
			t.Fatal(err)
		}
		within(t, "draining", old.Draining())
		if old.State() != leasehold.Held {
			t.Fatal("a draining lease is still held")
		}
		var successor *leasehold.Lease
		if mode == leasehold.Overlap {
			successor = <-next
			waiting, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			if err := successor.WaitClaimable(waiting); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("claimable while the predecessor drains: %v", err)
			}
			cancel()
		}
		if err := old.FinishDrain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if old.State() != leasehold.Lost {
			t.Fatal(old.State())
		}
		if mode == leasehold.Gap {
			successor = <-next
		}
		if err := successor.WaitClaimable(context.Background()); err != nil {
			t.Fatal(err)
		}
		if successor.TokenNumber() <= old.TokenNumber() {
			t.Fatal("the successor has a lower token")
		}
	}
}

func TestTheHolderLearnsOfAHandoffThatAnotherStarted(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr, leasehold.WithSessionTTL(3*time.Second))
	lease := acquire(t, client, "x")
	server.Run("handoff", "x")
	within(t, "draining", lease.Draining())
	if err := lease.FinishDrain(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestALeaseWithoutProgressEndsAsStalled(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr, leasehold.WithSessionTTL(2*time.Second))
	lease := acquire(t, client, "x", leasehold.RequireProgress(time.Second))
	for at := range uint64(3) {
		time.Sleep(600 * time.Millisecond)
		if err := lease.Progress(context.Background(), at+1); err != nil {
			t.Fatal(err)
		}
	}
	if lease.State() != leasehold.Held || lease.Remaining() > time.Second {
		t.Fatalf("%v, remaining %v", lease.State(), lease.Remaining())
	}
	within(t, "lost", lease.Lost())
	var lost *leasehold.Error
	if !errors.As(lease.Err(), &lost) || lost.State != leasehold.LostExpired || lost.Reason != "stalled" {
		t.Fatal(lease.Err())
	}
}

func TestAMaximumHoldEndsALeaseThatIsRenewed(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr, leasehold.WithSessionTTL(2*time.Second))
	lease := acquire(t, client, "x", leasehold.WithMaxHold(1200*time.Millisecond))
	within(t, "lost", lease.Lost())
	var lost *leasehold.Error
	if !errors.As(lease.Err(), &lost) || lost.Reason != "max_hold" {
		t.Fatal(lease.Err())
	}
}

func TestAWaitThatOutlivesTheTTLReturnsAHeldLease(t *testing.T) {
	server := servertest.Start(t)
	a, b := newClient(t, server.Addr, leasehold.WithSessionTTL(time.Second)), newClient(t, server.Addr, leasehold.WithSessionTTL(time.Second))
	holder := acquire(t, a, "x")
	time.AfterFunc(2500*time.Millisecond, func() { _ = holder.Release() })
	lease := acquire(t, b, "x", leasehold.WithWait(time.Minute))
	if lease.State() != leasehold.Held || lease.Remaining() < 500*time.Millisecond {
		t.Fatalf("%v, remaining %v", lease.State(), lease.Remaining())
	}
}

func TestClosingTheClientReleasesEverything(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr)
	leases := []*leasehold.Lease{acquire(t, client, "a"), acquire(t, client, "b")}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases {
		if lease.State() != leasehold.Lost {
			t.Fatal(lease.State())
		}
	}
	if _, err := client.Acquire(context.Background(), "c"); !errors.Is(err, leasehold.ErrClosed) {
		t.Fatal(err)
	}
	other := newClient(t, server.Addr)
	acquire(t, other, "a")
	acquire(t, other, "b")
}

func TestDoRunsWorkUnderALeaseAndKeepsItsError(t *testing.T) {
	server := servertest.Start(t)
	client := newClient(t, server.Addr)
	mine := errors.New("mine")
	err := client.Do(context.Background(), "x", func(ctx context.Context, lease *leasehold.Lease) error {
		server.Kill() // The release fails, and must not hide the error of the work.
		return mine
	}, leasehold.WithWait(time.Second))
	if !errors.Is(err, mine) {
		t.Fatal(err)
	}
}

func TestAUnixSocketIsAnAddress(t *testing.T) {
	server := servertest.Start(t)
	acquire(t, newClient(t, "unix:"+server.Socket()), "x")
}

func TestAnswersOfANewerServerAreUnderstood(t *testing.T) {
	var tenured atomic.Bool
	newer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/sessions":
			fmt.Fprint(w, `{"session":"1.0","secret":"s","ttl_ms":30000,"remaining_ms":30000,"mood":{"new":[1]}}`)
		case strings.HasSuffix(r.URL.Path, "/x:acquire") && !tenured.Swap(true):
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"code":"TENURE_CHANGE","status":503,"detail":"new","retry_after_ms":1}`)
		case strings.HasSuffix(r.URL.Path, "/x:acquire"):
			fmt.Fprint(w, `{"resource":"x","lease":"1.0","holder":"w","token":"lh9-new","token_number":"7","slot":0,"ttl_ms":30000,"remaining_ms":30000,
				"drain_ms":30000,"validity":"galaxy","state":"superposed","reason":null}`)
		default:
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, `{"code":"TEAPOT","status":418,"detail":"short and stout","next_step":"Pour.","cycle":"not a list"}`)
		}
	}))
	defer newer.Close()
	client := newClient(t, newer.URL)
	lease := acquire(t, client, "x")
	if lease.Token() != "lh9-new" || lease.State() != leasehold.Held {
		t.Fatalf("%v %v", lease.Token(), lease.State())
	}
	_, err := client.Acquire(context.Background(), "y")
	var problem *leasehold.Error
	if !errors.As(err, &problem) || problem.Code != "TEAPOT" || problem.IsRetryable() || problem.NextStep != "Pour." {
		t.Fatal(err)
	}
}
