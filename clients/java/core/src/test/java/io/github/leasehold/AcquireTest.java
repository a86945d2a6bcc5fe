package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Acquiring, waiting, canceling and releasing, against a real server. */
class AcquireTest extends ServerTest {
    @Test
    void aLeaseIsHeldUntilItIsClosed() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        try (Lease lease = client.acquire(resource)) {
            assertTrue(lease.isHeld());
            assertTrue(lease.token().matches("lh1-.*-\\d{19}-[0-9a-f]{8}"), lease.token());
            assertTrue(lease.token().contains(String.format("%019d", lease.tokenNumber())));
            assertTrue(lease.remaining().compareTo(Duration.ofMillis(2_940)) <= 0, "twice the drift is deducted");
            assertFalse(lease.remaining().isZero());
            assertEquals("w-1", lease.holder());
        }
        try (Lease again = client.acquire(resource)) {
            assertTrue(again.isHeld(), "the release was confirmed before close returned");
        }
    }

    @Test
    void aBusyLeaseNamesItsHolder() throws Exception {
        String resource = resource();
        try (Lease held = client("w-1").acquire(resource)) {
            BusyException busy = assertThrows(BusyException.class, () -> client("w-2").acquire(resource));
            assertEquals("BUSY", busy.code());
            assertEquals("w-1", busy.holder().orElseThrow());
            assertFalse(busy.nextStep().isEmpty());
            assertFalse(busy.isRetryable());
            assertTrue(client("w-3").tryAcquire(resource, AcquireOptions.defaults()).isEmpty());
            assertTrue(held.isHeld());
        }
    }

    @Test
    void leasesOfOneClientExcludeEachOtherBecauseOwnershipIsByToken() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        Lease first = client.acquire(resource);
        assertThrows(BusyException.class, () -> client.acquire(resource));
        Thread other = new Thread(first::close);
        other.start();
        other.join();
        assertEquals(LeaseState.LOST, first.state(), "any thread may release a lease");
        client.acquire(resource).close();
    }

    @Test
    void waitersAreServedInOrder() throws Exception {
        String resource = resource();
        Lease held = client("w-0").acquire(resource);
        StringBuffer order = new StringBuffer();
        CompletableFuture<?>[] all = new CompletableFuture<?>[3];
        for (int i = 0; i < 3; i++) {
            String name = "w-" + (i + 1);
            all[i] = client(name).acquireAsync(resource, waiting()).thenAccept(lease -> {
                order.append(lease.holder()).append(' ');
                lease.close();
            });
            until(name + " waits", () -> server.get("/v1/waiters/" + resource).contains("\"" + name + "\""));
        }
        held.close();
        CompletableFuture.allOf(all).get(LONG.toSeconds(), TimeUnit.SECONDS);
        assertEquals("w-1 w-2 w-3 ", order.toString());
    }

    @Test
    void aWaitThatIsNotServedInTimeIsATimeout() throws Exception {
        String resource = resource();
        try (Lease held = client("w-1").acquire(resource)) {
            AcquireOptions shortWait = AcquireOptions.defaults().wait(Duration.ofMillis(200));
            assertEquals("TIMEOUT", assertThrows(WaitTimeoutException.class, () -> client("w-2").acquire(resource, shortWait)).code());
            assertFalse(hasWaiter(resource));
        }
    }

    @Test
    void cancelingTheFutureWithdrawsTheWait() throws Exception {
        String resource = resource();
        Lease held = client("w-1").acquire(resource);
        LeaseholdClient second = client("w-2");
        CompletableFuture<Lease> waiting = second.acquireAsync(resource, waiting());
        until("w-2 waits", () -> hasWaiter(resource));
        assertTrue(waiting.cancel(true));
        assertThrows(CancellationException.class, waiting::join);
        until("the wait is withdrawn", () -> !hasWaiter(resource));
        held.close();
        second.acquire(resource).close();
    }

    @Test
    void interruptingTheThreadWithdrawsTheWait() throws Exception {
        String resource = resource();
        Lease held = client("w-1").acquire(resource);
        LeaseholdClient second = client("w-2");
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Thread waiter = new Thread(() -> {
            try {
                second.acquire(resource, waiting());
            } catch (Throwable error) {
                thrown.set(error);
            }
        });
        waiter.start();
        until("w-2 waits", () -> hasWaiter(resource));
        waiter.interrupt();
        waiter.join();
        assertEquals(InterruptedException.class, thrown.get().getClass());
        until("the wait is withdrawn", () -> !hasWaiter(resource));
        held.close();
    }

    @Test
    void aGrantThatArrivesAfterTheCancelIsReleased() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        for (int round = 0; round < 20; round++) {
            CompletableFuture<Lease> future = client.acquireAsync(resource, AcquireOptions.defaults());
            Thread.yield();
            if (!future.cancel(true) && !future.isCompletedExceptionally()) {
                // The grant arrived before the cancel, so it is the caller's to release.
                future.join().close();
            }
        }
        client("w-2").acquire(resource, waiting()).close();
    }

    @Test
    void closingTheClientReleasesEverything() throws Exception {
        String resource = resource();
        LeaseholdClient first = client("w-1");
        Lease lease = first.acquire(resource);
        CompletableFuture<Lease> waiting = first.acquireAsync(resource, waiting());
        until("it waits", () -> hasWaiter(resource));
        first.close();
        assertEquals(new Loss("released", "released"), lease.loss().orElseThrow());
        assertThrows(Exception.class, waiting::join);
        client("w-2").acquire(resource).close();
        assertThrows(IllegalStateException.class, () -> first.acquire(resource));
    }

    @Test
    void releaseIsIdempotentAndNeverMasksTheErrorOfTheWork() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        IllegalStateException work = assertThrows(IllegalStateException.class, () -> {
            try (Lease lease = client.acquire(resource)) {
                lease.release();
                lease.release();
                lease.releaseAsync().join();
                throw new IllegalStateException("the work failed");
            }
        });
        assertEquals("the work failed", work.getMessage());
        assertEquals(0, work.getSuppressed().length);
    }

    @Test
    void slotsAndSharedLeasesCoexist() throws Exception {
        LeaseholdClient client = client("w-1");
        String slots = resource();
        AcquireOptions two = AcquireOptions.defaults().slots(2);
        Lease first = client.acquire(slots, two);
        Lease second = client.acquire(slots, two);
        assertNotEquals(first.slot(), second.slot());
        assertThrows(BusyException.class, () -> client.acquire(slots, two));
        String read = resource();
        Lease reader = client.acquire(read, AcquireOptions.defaults().shared());
        Lease another = client.acquire(read, AcquireOptions.defaults().shared());
        assertThrows(BusyException.class, () -> client.acquire(read));
        List.of(first, second, reader, another).forEach(Lease::close);
        client.acquire(read).close();
    }

    @Test
    void unitsAreLimitedByTheCapacity() throws Exception {
        String resource = resource();
        server.post("/v1/leases/" + resource + ":capacity", "{\"units\":3}");
        LeaseholdClient client = client("w-1");
        Lease two = client.acquire(resource, AcquireOptions.defaults().units(2));
        assertThrows(BusyException.class, () -> client.acquire(resource, AcquireOptions.defaults().units(2)));
        two.resize(1);
        client.acquire(resource, AcquireOptions.defaults().units(2)).close();
        two.close();
    }

    @Test
    void severalResourcesAreAcquiredTogetherOrNotAtAll() throws Exception {
        String a = resource();
        String b = resource();
        LeaseholdClient client = client("w-1");
        Lease blocker = client.acquire(b);
        assertThrows(BusyException.class, () -> client.acquireAll(List.of(ResourceAccess.exclusive(a), ResourceAccess.exclusive(b)), AcquireOptions.defaults()));
        client.acquire(a).close();
        blocker.close();
        List<Lease> both = client.acquireAll(List.of(ResourceAccess.exclusive(a), ResourceAccess.exclusive(b)), AcquireOptions.defaults());
        assertEquals(List.of(a, b), both.stream().map(Lease::resource).toList());
        assertTrue(both.stream().allMatch(Lease::isHeld));
        assertThrows(BusyException.class, () -> client("w-2").acquire(a));
        both.forEach(Lease::close);
    }

    @Test
    void aLeaseWithATtlOfItsOwnIsRenewedByItself() throws Exception {
        LeaseholdClient client = client("w-1");
        AcquireOptions own = AcquireOptions.defaults().ttl(Duration.ofSeconds(2));
        try (Lease lease = client.acquire(resource(), own)) {
            assertTrue(lease.remaining().compareTo(Duration.ofMillis(1_960)) <= 0);
            Thread.sleep(4_500);
            assertTrue(lease.isHeld(), "after more than two ttls");
        }
    }

    @Test
    void invalidInputNamesTheField() {
        LeaseholdClient client = client("w-1");
        assertEquals("resource", assertThrows(InvalidRequestException.class, () -> client.acquire("")).invalidField().orElseThrow());
        LeaseholdException priority =
                assertThrows(InvalidRequestException.class, () -> client.acquire(resource(), AcquireOptions.defaults().priority(300)));
        assertEquals("priority", priority.field("field").orElseThrow());
        assertThrows(InvalidRequestException.class, () -> client.acquireAll(List.of(), AcquireOptions.defaults()));
        assertEquals("CONFIG", assertThrows(InvalidRequestException.class, () -> LeaseholdClient.of("no port:x")).code());
        assertEquals("session_ttl", assertThrows(InvalidRequestException.class, () -> builder("w").sessionTtl(Duration.ZERO).build()).field("key").orElseThrow());
    }

    @Test
    void theUnixSocketIsAnAddressToo() throws Exception {
        LeaseholdClient client = keep(LeaseholdClient.builder().servers("unix:" + server.socket()).holder("w-unix").build());
        String resource = resource();
        try (Lease lease = client.acquire(resource)) {
            assertTrue(lease.isHeld());
            CompletableFuture<Lease> waiting = client.acquireAsync(resource, waiting());
            until("it waits", () -> hasWaiter(resource));
            waiting.cancel(true);
            until("the wait is withdrawn", () -> !hasWaiter(resource));
        }
    }
}
