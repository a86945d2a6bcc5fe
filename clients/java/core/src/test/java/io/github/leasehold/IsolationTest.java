package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.testkit.FaultProxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** What a program does with its callbacks, threads and interrupts reaches no thread that renews, and no code after the work. */
class IsolationTest extends ServerTest {
    private static void revoke(String resource) {
        server.post("/v1/leases/" + resource + ":revoke", "{\"comment\":\"test\"}");
    }

    @Test
    void aCallbackThatFailsOrBlocksDelaysNoOther() throws Exception {
        LeaseholdClient client = client("w-1");
        CountDownLatch release = new CountDownLatch(1);
        List<Lease> leases = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            leases.add(client.acquire(resource()));
        }
        leases.get(0).onLost(loss -> {
            throw new AssertionError("a callback of the program fails");
        });
        leases.get(1).onLost(loss -> release.countDown());
        CountDownLatch blocked = new CountDownLatch(1);
        leases.get(1).onStateChange(state -> {
            blocked.countDown();
            block(new CountDownLatch(1));
        });
        CompletableFuture<Loss> last = new CompletableFuture<>();
        leases.get(2).onLost(last::complete);
        for (Lease lease : leases) {
            revoke(lease.resource());
        }
        assertTrue(release.await(LONG.toSeconds(), TimeUnit.SECONDS));
        assertTrue(blocked.await(LONG.toSeconds(), TimeUnit.SECONDS));
        assertEquals("operator", last.get(LONG.toSeconds(), TimeUnit.SECONDS).reason());
        try (Lease another = client.acquire(resource())) {
            assertTrue(another.isHeld(), "the client works on");
        }
    }

    private static void block(CountDownLatch never) {
        try {
            never.await();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void stagesOfTheProgramNeverRunOnAThreadThatRenewsOrWatches() throws Exception {
        LeaseholdClient client = client("w-1");
        Lease lease = client.acquire(resource());
        Set<String> names = ConcurrentHashMap.newKeySet();
        Runnable record = () -> names.add(Thread.currentThread().getName());
        CompletableFuture<?>[] stages = {
            lease.lostFuture().thenRun(record), lease.stoppedFuture().thenRun(record), lease.lostFuture().thenRun(record)
        };
        lease.onLost(loss -> record.run());
        lease.onStateChange(state -> record.run());
        revoke(lease.resource());
        CompletableFuture.allOf(stages).get(LONG.toSeconds(), TimeUnit.SECONDS);
        until("a callback ran", () -> names.stream().anyMatch(name -> name.startsWith("leasehold-callback")));
        List<String> own = List.of("leasehold-renewal", "leasehold-deadlines", "leasehold-events");
        assertTrue(names.stream().noneMatch(own::contains), names::toString);
    }

    @Test
    void aClientWhoseSessionEndedDoesNotSpin() throws Exception {
        AtomicLong reads = new AtomicLong();
        HolderClock clock = () -> {
            if (Thread.currentThread().getName().equals("leasehold-renewal")) {
                reads.incrementAndGet();
            }
            return HolderClock.system().nanos();
        };
        LeaseholdClient client = keep(builder("w-1").clock(clock).build());
        Lease lease = client.acquire(resource());
        Session session = client.worker().session();
        session.end(Loss.SESSION_ENDED);
        client.askNow(lease);
        client.worker().askAll();
        long before = reads.get();
        Thread.sleep(1_000);
        assertTrue(reads.get() - before < 1_000, () -> reads.get() - before + " passes in a second");
        try (Lease again = client.acquire(resource())) {
            assertTrue(again.isHeld());
        }
    }

    @Test
    void aLeaseIsRenewedAgainAfterAnErrorOfTheRenewal() throws Exception {
        AtomicBoolean fails = new AtomicBoolean();
        HolderClock clock = () -> {
            if (fails.get() && Thread.currentThread().getName().startsWith("leasehold-")) {
                throw new StackOverflowError("a test");
            }
            return HolderClock.system().nanos();
        };
        LeaseholdClient client = keep(builder("w-1").clock(clock).build());
        Lease lease = client.acquire(resource());
        fails.set(true);
        Thread.sleep(500);
        fails.set(false);
        Thread.sleep(Duration.ofSeconds(6).toMillis());
        assertTrue(lease.isHeld(), "after two ttls");
        CompletableFuture<LeaseState> stopped = lease.stoppedFuture();
        revoke(lease.resource());
        assertEquals(LeaseState.LOST, stopped.get(LONG.toSeconds(), TimeUnit.SECONDS));
    }

    @Test
    void anInterruptedThreadAcquiresNothingAndStillReleases() throws Exception {
        LeaseholdClient client = client("w-1");
        String resource = resource();
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> client.acquire(resource, waiting()));
        assertFalse(Thread.interrupted(), "the exception takes the interrupt");
        Lease lease = client("w-2").acquire(resource, waiting());
        Thread.currentThread().interrupt();
        lease.close();
        assertTrue(Thread.interrupted(), "the interrupt stays set");
        Lease second = client.acquire(resource);
        Thread.currentThread().interrupt();
        client.close();
        assertTrue(Thread.interrupted(), "the interrupt stays set");
        assertEquals(Loss.RELEASED, second.loss().orElseThrow());
        client("w-3").acquire(resource).close();
    }

    @Test
    void noInterruptReachesCodeAfterTheWork() throws Exception {
        WorkInterrupter returned = new WorkInterrupter(Thread.currentThread());
        assertFalse(returned.finish());
        returned.interrupt();
        assertFalse(Thread.interrupted());
        WorkInterrupter late = new WorkInterrupter(Thread.currentThread());
        late.interrupt();
        assertTrue(late.finish());
        Thread.currentThread().interrupt();
        assertTrue(late.finish());
        assertTrue(Thread.interrupted(), "only the first call takes an interrupt");
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            Lease lease = keep(builder("w-1").servers(proxy.address()).build()).acquire(resource());
            assertThrows(AssertionError.class, () -> lease.run(() -> {
                proxy.cut(true);
                throw new AssertionError("an error ends the work, and the lease is lost later");
            }));
            until("suspended", () -> lease.stoppedFuture().isDone());
            assertFalse(Thread.interrupted());
        }
    }

    @Test
    void aThousandWaitsAreWithdrawnAndTheClientHoldsOn() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        Lease held = client.acquire(resource);
        List<CompletableFuture<Lease>> waiting = new ArrayList<>();
        for (int i = 0; i < 1_000; i++) {
            waiting.add(client.acquireAsync(resource, waiting()));
        }
        until("many wait", () -> hasWaiter(resource));
        waiting.subList(1, 1_000).forEach(future -> future.cancel(true));
        assertTrue(held.isHeld());
        held.close();
        try (Lease first = waiting.get(0).get(LONG.toSeconds(), TimeUnit.SECONDS)) {
            assertTrue(first.isHeld());
        }
        client.acquire(resource, waiting()).close();
        until("no wait is left", () -> !hasWaiter(resource));
    }
}
