package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold"
	"leasehold/internal/servertest"
)

// Queues, small state, elections, registrations and batch renewals against a real server.

func TestAQueueDeliversEachMessageToOneWorkerUntilItIsAcknowledged(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr)
	queue := client.Queue("mail", leasehold.WithVisibility(2*time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, body := range []string{"pay 5", "bad"} {
		if _, err := queue.Send(ctx, []byte(body), leasehold.WithMaxAttempts(2)); err != nil {
			t.Fatal(err)
		}
	}
	attempts := map[string]int{}
	working, stop := context.WithCancel(ctx)
	err := queue.Work(working, func(ctx context.Context, message *leasehold.Message) error {
		attempts[string(message.Body)]++
		if message.Token() == "" || message.Remaining() == 0 {
			t.Error("a delivery has a token and time")
		}
		if string(message.Body) == "pay 5" {
			// Longer than the visibility: the message is extended meanwhile.
			select {
			case <-ctx.Done():
				t.Error("the work was stopped:", context.Cause(ctx))
			case <-time.After(3 * time.Second):
			}
			return nil
		}
		if message.Attempt == 2 {
			stop()
		}
		return errors.New("cannot pay")
	})
	if err != nil || attempts["pay 5"] != 1 || attempts["bad"] != 2 {
		t.Fatalf("%v %v", attempts, err)
	}
	stats, err := queue.Stats(ctx)
	if err != nil || stats.Dead != 1 || stats.Ready != 0 || stats.InFlight != 0 {
		t.Fatalf("%+v %v", stats, err)
	}
}

func TestAMessageStaysWithAWorkerThatFinishesAfterItsContextEnded(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr)
	queue := client.Queue("mail", leasehold.WithVisibility(2*time.Second))
	if _, err := queue.Send(context.Background(), []byte("long")); err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(context.Background())
	err := queue.Work(working, func(ctx context.Context, message *leasehold.Message) error {
		stop()
		<-ctx.Done()
		// What cannot be interrupted takes longer than the visibility.
		time.Sleep(5 * time.Second)
		if other, err := queue.Receive(context.Background(), 1, 0); err != nil || len(other) != 0 {
			t.Error("another worker received the message", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if stats, err := queue.Stats(context.Background()); err != nil || *stats != (leasehold.QueueStats{}) {
		t.Fatalf("%+v %v", stats, err)
	}
}

func TestAWorkerIsWokenByANewMessage(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr)
	queue := client.Queue("mail")
	received := make(chan string, 1)
	go func() {
		messages, err := queue.Receive(context.Background(), 1, time.Minute)
		if err != nil || len(messages) != 1 {
			t.Error(messages, err)
			received <- ""
			return
		}
		received <- string(messages[0].Body)
	}()
	if _, err := queue.Send(context.Background(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if body := <-received; body != "hello" {
		t.Fatal(body)
	}
}

func TestSmallStateIsWrittenOnlyUnderACurrentLease(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr)
	ctx := context.Background()
	lease := acquire(t, client, "jobs/import")
	first, err := lease.Put(ctx, "checkpoint", []byte("row 1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Put(ctx, "checkpoint", []byte("row 2"), leasehold.IfRevision(first)); err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Put(ctx, "checkpoint", []byte("row 3"), leasehold.IfRevision(first)); !errors.Is(err, leasehold.ErrConflict) {
		t.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Put(ctx, "checkpoint", []byte("late")); !errors.Is(err, leasehold.ErrLeaseLost) && !errors.Is(err, leasehold.ErrNotCurrent) {
		t.Fatal(err)
	}
	entries, err := client.State(ctx, "jobs/import", "checkpoint")
	if err != nil || len(entries) != 1 || string(entries[0].Value) != "row 2" || entries[0].TokenNumber != lease.TokenNumber() {
		t.Fatalf("%+v %v", entries, err)
	}
	next := acquire(t, client, "jobs/import")
	if err := next.Delete(ctx, "checkpoint"); err != nil {
		t.Fatal(err)
	}
	if entries, err := client.State(ctx, "jobs/import", ""); err != nil || len(entries) != 0 {
		t.Fatalf("%+v %v", entries, err)
	}
}

func TestOneCandidateLeadsAndTheNextFollowsAtOnce(t *testing.T) {
	server := servertest.Start(t)
	a, b := newClient(t, server.Addr, leasehold.WithHolder("a")), newClient(t, server.Addr, leasehold.WithHolder("b"))
	ctx, stop := context.WithCancel(context.Background())
	leading, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- a.Election("leader", leasehold.WithMetadata("10.0.0.7:443")).Lead(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
			close(leading)
			<-ctx.Done()
			return nil
		})
	}()
	within(t, "a leads", leading)
	leader, err := b.Election("leader").Leader(context.Background())
	if err != nil || leader == nil || leader.Holder != "a" || leader.Metadata != "10.0.0.7:443" {
		t.Fatalf("%+v %v", leader, err)
	}
	next := make(chan *leasehold.Lease, 1)
	go func() {
		lease, err := b.Election("leader").Campaign(context.Background())
		if err != nil {
			t.Error(err)
		}
		next <- lease
	}()
	started := time.Now()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if lease := <-next; lease == nil || time.Since(started) > 20*time.Second {
		t.Fatalf("the next leader waited for %v", time.Since(started))
	}
}

func TestARegistrationEndsWithItsClient(t *testing.T) {
	server := servertest.Start(t)
	a, b := newClient(t, server.Addr), newClient(t, server.Addr)
	if _, err := a.Register(context.Background(), "services/billing", "i-7", "10.0.0.7:443"); err != nil {
		t.Fatal(err)
	}
	instances, err := b.Instances(context.Background(), "services/billing")
	if err != nil || len(instances) != 1 || instances[0].Name != "i-7" || instances[0].Details != "10.0.0.7:443" {
		t.Fatalf("%+v %v", instances, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if instances, err := b.Instances(context.Background(), "services/billing"); err != nil || len(instances) != 0 {
		t.Fatalf("%+v %v", instances, err)
	}
}

func TestAThousandLeasesAreRenewedInBatches(t *testing.T) {
	client := newClient(t, servertest.Start(t).Addr, leasehold.WithSessionTTL(3*time.Second))
	var leases []*leasehold.Lease
	for range 12 {
		var requirements []leasehold.Requirement
		for range 100 {
			requirements = append(requirements, leasehold.Requirement{Resource: "many/" + time.Now().Format("150405.000000000")})
			time.Sleep(time.Microsecond)
		}
		granted, err := client.AcquireAll(context.Background(), requirements)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, granted...)
	}
	time.Sleep(6 * time.Second)
	for i, lease := range leases {
		if lease.State() != leasehold.Held {
			t.Fatalf("lease %d is %v: %v", i, lease.State(), lease.Err())
		}
	}
}
