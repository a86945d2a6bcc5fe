// Package leaderelection has the shape of k8s.io/client-go/tools/leaderelection, on a lease with a fencing token. A program that uses that package
// changes its import, and the lock in its configuration.
//
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Client:          client,
//		Name:            "jobs/leader",
//		ReleaseOnCancel: true,
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) { run(ctx) },
//			OnStoppedLeading: func() { os.Exit(1) },
//			OnNewLeader:      func(identity string) { log.Print(identity) },
//		},
//	})
//
// Differences: the deadline is local and includes suspend; the context of OnStartedLeading ends before another leader can start; and it carries the
// token for the writes of the leader, see [Token].
package leaderelection

import (
	"context"
	"errors"
	"sync"
	"time"

	"leasehold"
)

// LeaderCallbacks are called when the leadership changes.
type LeaderCallbacks struct {
	// OnStartedLeading is called in a goroutine of its own when this client starts to lead. Its context ends when it stops.
	OnStartedLeading func(context.Context)
	// OnStoppedLeading is called when this client stops to lead, and when Run ends.
	OnStoppedLeading func()
	// OnNewLeader is called when the observed leader changes, also to this client. Optional.
	OnNewLeader func(identity string)
}

// LeaderElectionConfig configures an elector.
type LeaderElectionConfig struct {
	// Client acquires the lease. Its holder name is the identity.
	Client *leasehold.Client
	// Name is the resource, in place of client-go's Lock.
	Name string
	// LeaseDuration is the ttl of the lease. Default: that of the client's session. RenewDeadline and RetryPeriod of client-go have no
	// counterpart: renewal starts after a third of the ttl, and work stops at the local deadline.
	LeaseDuration time.Duration
	// Callbacks are required.
	Callbacks LeaderCallbacks
	// ReleaseOnCancel lets Run wait until OnStartedLeading has returned and the lease is released. Without it Run returns at once, and the lease is
	// released when OnStartedLeading returns.
	ReleaseOnCancel bool
	// Metadata that observers see while this client leads, for example its address.
	Metadata string
}

// LeaderElector campaigns for one resource.
type LeaderElector struct {
	config   LeaderElectionConfig
	election *leasehold.Election

	mu       sync.Mutex
	lease    *leasehold.Lease
	observed string
}

type tokenKey struct{}

// Token returns the fencing token of the leadership from the context of OnStartedLeading. Present it with every write.
func Token(ctx context.Context) (string, bool) {
	lease, ok := ctx.Value(tokenKey{}).(*leasehold.Lease)
	if !ok {
		return "", false
	}
	return lease.Token(), true
}

// NewLeaderElector checks the configuration.
func NewLeaderElector(config LeaderElectionConfig) (*LeaderElector, error) {
	switch {
	case config.Client == nil:
		return nil, errors.New("leaderelection: Client must not be nil")
	case config.Name == "":
		return nil, errors.New("leaderelection: Name must not be empty; it is the resource, for example jobs/leader")
	case config.Callbacks.OnStartedLeading == nil:
		return nil, errors.New("leaderelection: OnStartedLeading callback must not be nil")
	case config.Callbacks.OnStoppedLeading == nil:
		return nil, errors.New("leaderelection: OnStoppedLeading callback must not be nil")
	}
	var options []leasehold.AcquireOption
	if config.LeaseDuration != 0 {
		options = append(options, leasehold.WithTTL(config.LeaseDuration))
	}
	if config.Metadata != "" {
		options = append(options, leasehold.WithMetadata(config.Metadata))
	}
	return &LeaderElector{config: config, election: config.Client.Election(config.Name, options...)}, nil
}

// RunOrDie starts an elector with the configuration, and panics if it is invalid.
func RunOrDie(ctx context.Context, config LeaderElectionConfig) {
	elector, err := NewLeaderElector(config)
	if err != nil {
		panic(err)
	}
	elector.Run(ctx)
}

// Run campaigns, leads, and returns when ctx ends or the leadership is lost, like client-go: a program that wants to campaign again calls it again.
func (e *LeaderElector) Run(ctx context.Context) {
	defer e.config.Callbacks.OnStoppedLeading()
	observing, stopObserving := context.WithCancel(ctx)
	defer stopObserving()
	if e.config.Callbacks.OnNewLeader != nil {
		go func() { _ = e.election.Observe(observing, e.observe) }()
	}
	lease := e.campaign(ctx)
	if lease == nil {
		return
	}
	e.mu.Lock()
	e.lease = lease
	e.mu.Unlock()
	e.observe(&leasehold.Leader{Holder: lease.Holder()})
	leading, cancel := lease.WithContext(ctx)
	leading = context.WithValue(leading, tokenKey{}, lease)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		e.config.Callbacks.OnStartedLeading(leading)
	}()
	<-leading.Done()
	cancel()
	release := func() {
		// The successor may start when the work has stopped, at the latest when the lease ends.
		select {
		case <-finished:
		case <-lease.Context().Done():
		}
		_ = lease.Release()
	}
	if e.config.ReleaseOnCancel {
		release()
	} else {
		go release()
	}
	e.mu.Lock()
	e.lease = nil
	e.mu.Unlock()
}

func (e *LeaderElector) campaign(ctx context.Context) *leasehold.Lease {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		lease, err := e.election.Campaign(ctx)
		if err == nil {
			return lease
		}
		if errors.Is(err, leasehold.ErrClosed) {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (e *LeaderElector) observe(leader *leasehold.Leader) {
	if leader == nil {
		return
	}
	e.mu.Lock()
	isNew := e.observed != leader.Holder
	e.observed = leader.Holder
	e.mu.Unlock()
	if isNew && e.config.Callbacks.OnNewLeader != nil {
		e.config.Callbacks.OnNewLeader(leader.Holder)
	}
}

// IsLeader reports whether this client leads now, by its local clock.
func (e *LeaderElector) IsLeader() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lease != nil && e.lease.State() == leasehold.Held
}

// GetLeader returns the identity of the last observed leader; empty if there was none.
func (e *LeaderElector) GetLeader() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.observed
}
