package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.testkit.FaultProxy;
import io.github.leasehold.testkit.LeaseholdServer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** What keeps a lease, what suspends it and what ends it, against a real server. */
class HoldTest extends ServerTest {
    private static final Duration TTL = Duration.ofSeconds(3);

    @Test
    void nothingTheProgramDoesStopsTheRenewal() throws Exception {
        assertTrue(isHeldWhileAllThreadsAreBlocked(builder("w-1")));
    }

    @Test
    void aRenewalOnThreadsOfTheProgramWouldLoseTheLease() throws Exception {
        // Breaks the property on purpose, so that the test above is known to see it.
        ExecutorService users = Executors.newFixedThreadPool(2, task -> ClientThreads.daemon(task, "user"));
        try {
            ClientBuilder broken = builder("w-1").renewalExecutor(task -> {
                try {
                    users.submit(task).get();
                } catch (Exception ended) {
                    throw new IllegalStateException(ended);
                }
            });
            assertFalse(isHeldWhileAllThreadsAreBlocked(broken, users));
        } finally {
            users.shutdownNow();
        }
    }

    private boolean isHeldWhileAllThreadsAreBlocked(ClientBuilder builder) throws Exception {
        ExecutorService users = Executors.newFixedThreadPool(2, task -> ClientThreads.daemon(task, "user"));
        try {
            return isHeldWhileAllThreadsAreBlocked(builder, users);
        } finally {
            users.shutdownNow();
        }
    }

    /** Blocks the program's threads, the common pool, and the threads that run callbacks, for three ttls. */
    private boolean isHeldWhileAllThreadsAreBlocked(ClientBuilder builder, ExecutorService users) throws Exception {
        LeaseholdClient client = keep(builder.build());
        Lease lease = client.acquire(resource());
        CountDownLatch release = new CountDownLatch(1);
        Runnable block = () -> {
            try {
                release.await();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        };
        for (int i = 0; i < 4; i++) {
            users.execute(block);
            ForkJoinPool.commonPool().execute(block);
        }
        lease.onStateChange(state -> block.run());
        CompletableFuture.delayedExecutor(1, TimeUnit.MILLISECONDS, Runnable::run).execute(block);
        List<LeaseState> seen = new ArrayList<>();
        long until = System.nanoTime() + 3 * TTL.toNanos();
        while (System.nanoTime() < until) {
            seen.add(lease.state());
            Thread.sleep(20);
        }
        release.countDown();
        return seen.stream().allMatch(LeaseState.HELD::equals);
    }

    @Test
    void theDeadlineCountsFromBeforeTheRequest() throws Exception {
        assertTrue(longestRemainingBehindASlowNetwork(builder("w-1")).compareTo(TTL.minusMillis(400)) <= 0);
    }

    @Test
    void aDeadlineFromTheReplyWouldBeTooLate() throws Exception {
        // Breaks the property on purpose, so that the test above is known to see it.
        assertTrue(longestRemainingBehindASlowNetwork(builder("w-1").deadlineOrigin((sent, received) -> received)).compareTo(TTL.minusMillis(400)) > 0);
    }

    /** The longest remaining time that a lease reports over two renewals, if every reply takes 400 ms. */
    private Duration longestRemainingBehindASlowNetwork(ClientBuilder builder) throws Exception {
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            proxy.delayReplies(400);
            LeaseholdClient client = keep(builder.servers(proxy.address()).build());
            Lease lease = client.acquire(resource());
            Duration longest = Duration.ZERO;
            long until = System.nanoTime() + TTL.toNanos();
            while (System.nanoTime() < until) {
                Duration now = lease.remaining();
                longest = now.compareTo(longest) > 0 ? now : longest;
                Thread.sleep(1);
            }
            assertTrue(lease.isHeld());
            return longest;
        }
    }

    @Test
    void withoutAServerTheLeaseIsSuspendedAtTheDeadlineAndHeldAgainAfterARenewal() throws Exception {
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").servers(proxy.address()).build());
            Lease lease = client.acquire(resource());
            List<LeaseState> changes = java.util.Collections.synchronizedList(new ArrayList<>());
            lease.onStateChange(changes::add);
            proxy.cut(true);
            until("suspended", () -> lease.state() == LeaseState.SUSPENDED);
            assertEquals(Duration.ZERO, lease.remaining());
            assertThrows(LeaseSuspendedException.class, lease::requireHeld);
            assertEquals(LeaseState.SUSPENDED, lease.stoppedFuture().get(LONG.toSeconds(), TimeUnit.SECONDS));
            proxy.cut(false);
            until("held again, or ended", () -> lease.state() != LeaseState.SUSPENDED);
            if (lease.isHeld()) {
                until("reported", () -> changes.contains(LeaseState.HELD));
                assertTrue(lease.stoppedFuture().isDone(), "work that was stopped stays stopped");
            } else {
                assertEquals("session", lease.loss().orElseThrow().reason());
            }
        }
    }

    @Test
    void aServerThatStopsForALongTimeSuspendsAndTheSameTokenResumes() throws Exception {
        try (LeaseholdServer own = LeaseholdServer.start();
                LeaseholdClient client = LeaseholdClient.builder().servers(own.address()).holder("w-1").sessionTtl(TTL).build()) {
            Lease lease = client.acquire("x");
            String token = lease.token();
            own.process().signal("STOP");
            until("suspended", () -> lease.state() == LeaseState.SUSPENDED);
            own.process().signal("CONT");
            until("decided", () -> lease.state() != LeaseState.SUSPENDED);
            if (lease.isHeld()) {
                assertEquals(token, lease.token());
            }
        }
    }

    @Test
    void workIsInterruptedAtTheDeadline() throws Exception {
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").servers(proxy.address()).build());
            Lease lease = client.acquire(resource());
            LeaseSuspendedException stopped = assertThrows(LeaseSuspendedException.class, () -> lease.run(() -> {
                proxy.cut(true);
                Thread.sleep(LONG.toMillis());
                return "not reached";
            }));
            assertEquals(InterruptedException.class, stopped.getSuppressed()[0].getClass());
            assertFalse(Thread.interrupted(), "the interrupt does not leak");
        }
    }

    @Test
    void workThatReturnsInTimeHasItsResult() throws Exception {
        try (Lease lease = client("w-1").acquire(resource())) {
            assertEquals("done", lease.run(() -> "done"));
            assertEquals("broken", assertThrows(IllegalStateException.class, () -> lease.run(() -> {
                throw new IllegalStateException("broken");
            })).getMessage());
        }
    }

    @Test
    void aRevocationEndsTheLease() throws Exception {
        String resource = resource();
        Lease lease = client("w-1").acquire(resource);
        CompletableFuture<Loss> callback = new CompletableFuture<>();
        lease.onLost(callback::complete);
        server.post("/v1/leases/" + resource + ":revoke", "{\"comment\":\"test\"}");
        assertEquals("revoked", lease.lostFuture().get(LONG.toSeconds(), TimeUnit.SECONDS).state());
        assertEquals("operator", callback.get(LONG.toSeconds(), TimeUnit.SECONDS).reason());
        assertEquals(LeaseState.LOST, lease.state());
        assertFalse(lease.loss().orElseThrow().mayAcquireAgain());
        LeaseLostException lost = assertThrows(LeaseLostException.class, lease::requireHeld);
        assertEquals("operator", lost.reason().orElseThrow());
        assertThrows(LeaseLostException.class, () -> lease.progress(1));
        assertEquals("revoked", assertThrows(LeaseLostException.class, lease::release).state().orElseThrow(), "a release is no success");
        lease.close();
    }

    @Test
    void theEndOfTheSessionEndsEveryLeaseAndTheNextAcquireOpensAnother() throws Exception {
        try (LeaseholdServer own = LeaseholdServer.start();
                FaultProxy proxy = FaultProxy.start(own.address());
                LeaseholdClient client = LeaseholdClient.builder().servers(proxy.address()).holder("w-1").sessionTtl(TTL).build()) {
            Lease first = client.acquire("a");
            Lease second = client.acquire("b");
            proxy.cut(true);
            until("the server has ended the session", () -> own.get("/v1/status").contains("\"sessions\":0"));
            proxy.cut(false);
            assertEquals(new Loss("expired", "session"), first.lostFuture().get(LONG.toSeconds(), TimeUnit.SECONDS));
            assertEquals(new Loss("expired", "session"), second.lostFuture().get(LONG.toSeconds(), TimeUnit.SECONDS));
            try (Lease again = client.acquire("a")) {
                assertTrue(again.isHeld());
                assertTrue(again.tokenNumber() > first.tokenNumber());
            }
        }
    }

    @Test
    void timeThatPassesDuringASuspendCounts() throws Exception {
        AtomicLong suspended = new AtomicLong();
        HolderClock clock = () -> HolderClock.system().nanos() + suspended.get();
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").servers(proxy.address()).sessionTtl(Duration.ofSeconds(30)).clock(clock).build());
            Lease lease = client.acquire(resource());
            proxy.cut(true);
            assertTrue(lease.isHeld());
            suspended.set(Duration.ofMinutes(5).toNanos());
            assertEquals(LeaseState.SUSPENDED, lease.state(), "the first check after the wake-up");
            lease.stoppedFuture().get(LONG.toSeconds(), TimeUnit.SECONDS);
        }
    }

    @Test
    void aServerThatIsDownForLongerThanTheTtlDoesNotEndTheClient() throws Exception {
        try (LeaseholdServer own = LeaseholdServer.start();
                LeaseholdClient client = LeaseholdClient.builder().servers(own.address()).holder("w-1").sessionTtl(TTL)
                        .requestTimeout(Duration.ofSeconds(1)).build()) {
            Lease lease = client.acquire("x");
            own.kill();
            until("suspended", () -> lease.state() == LeaseState.SUSPENDED);
            UnavailableException down = assertThrows(UnavailableException.class, () -> client.acquire("y"));
            assertTrue(down.isRetryable());
            assertTrue(down.getMessage().contains(own.address()), down.getMessage());
            own.restart();
            until("decided", () -> lease.state() != LeaseState.SUSPENDED);
            until("works again", () -> {
                try (Lease again = client.acquire("y")) {
                    return again.isHeld();
                } catch (LeaseholdException | InterruptedException later) {
                    return false;
                }
            });
        }
    }
}
