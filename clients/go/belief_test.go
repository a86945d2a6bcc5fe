package leasehold

import (
	"testing"
	"time"
)

// The local validity of a lease: its deadline, drains, and replies that are late or out of order.

const (
	testTTL      = 10_001 * time.Millisecond
	testLocalTTL = 9_800 * time.Millisecond
)

func at(ms int64) time.Duration { return millis(ms) }

func grantedBelief(drain time.Duration) belief {
	return newBelief(testTTL, drain, leaseReply{sent: at(1_000), received: at(1_500), remaining: testTTL})
}

func TestTheLocalDeadlineCountsFromTheRequestAndIsShorterThanTheGrant(t *testing.T) {
	b := grantedBelief(0)
	if b.deadline() != at(1_000)+testLocalTTL {
		t.Fatalf("deadline %v", b.deadline())
	}
	if !b.holds(b.deadline()-1) || b.holds(b.deadline()) {
		t.Fatal("the deadline is the first moment at which the lease is not held")
	}
}

func TestALateReplyExtendsOnlyFromTheTimeOfItsRequest(t *testing.T) {
	b := grantedBelief(0)
	b.renewed(leaseReply{sent: at(4_000), received: at(9_000), remaining: testTTL})
	if b.deadline() != at(4_000)+testLocalTTL {
		t.Fatalf("deadline %v", b.deadline())
	}
}

func TestAReplyThatANewerOneOvertookChangesNothing(t *testing.T) {
	b := grantedBelief(0)
	b.renewed(leaseReply{sent: at(5_000), received: at(5_100), remaining: testTTL})
	b.renewed(leaseReply{sent: at(4_000), received: at(5_200), remaining: time.Millisecond})
	if b.deadline() != at(5_000)+testLocalTTL {
		t.Fatalf("deadline %v", b.deadline())
	}
}

func TestAnObservedDeadlineStaysPassedUntilTheSameTokenIsRenewed(t *testing.T) {
	b := grantedBelief(0)
	b.observe(at(40_000))
	if b.holds(at(2_000)) {
		t.Fatal("a clock that was read out of order revived the lease")
	}
	b.renewed(leaseReply{sent: at(40_000), received: at(40_100), remaining: testTTL})
	if !b.holds(at(40_100)) {
		t.Fatal("the renewal did not resume the lease")
	}
}

func TestAReplyAfterItsOwnDeadlineLeavesTheHolderSuspended(t *testing.T) {
	b := grantedBelief(0)
	b.renewed(leaseReply{sent: at(4_000), received: at(4_000) + testLocalTTL, remaining: testTTL})
	if b.holds(at(4_000) + testLocalTTL) {
		t.Fatal("held after the deadline")
	}
}

func TestNoReplyMakesALeaseUnbounded(t *testing.T) {
	b := grantedBelief(0)
	b.renewed(leaseReply{sent: at(5_000), received: at(5_100), remaining: time.Duration(1 << 62)})
	if b.deadline() != at(5_000)+testLocalTTL {
		t.Fatalf("deadline %v", b.deadline())
	}
}

func TestAHolderWithoutContactStopsOneDrainPeriodAfterItsLastReply(t *testing.T) {
	b := grantedBelief(at(5_001))
	if b.deadline() != at(1_000+4_900) {
		t.Fatalf("deadline %v", b.deadline())
	}
}

func TestADrainingHolderIsNeverCurrentAgainUnderItsToken(t *testing.T) {
	b := grantedBelief(at(20_001))
	b.renewed(leaseReply{sent: at(4_000), received: at(4_100), remaining: testTTL, isDraining: true, drain: at(2_001)})
	stop := at(4_000 + 1_960)
	b.renewed(leaseReply{sent: at(4_500), received: at(4_600), remaining: testTTL})
	b.renewed(leaseReply{sent: at(4_700), received: at(4_800), remaining: testTTL, isDraining: true, drain: at(60_000)})
	if b.deadline() != stop || b.holds(stop) {
		t.Fatalf("deadline %v, want %v", b.deadline(), stop)
	}
}

func TestStretchWaitsUntilTheTimeHasPassedOnEveryClock(t *testing.T) {
	// 4,950 ms * 1.01 / 0.99.
	if got := stretch(at(4_949)); got < at(5_050) || got > at(5_051) {
		t.Fatalf("stretch %v", got)
	}
}

func TestTheSystemClockNeverGoesBack(t *testing.T) {
	clock := SystemClock()
	before := clock.Now()
	time.Sleep(time.Millisecond)
	if after := clock.Now(); after-before < time.Millisecond {
		t.Fatalf("1 ms of sleep took %v", after-before)
	}
}
