package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Planned handoffs, draining, progress and rotation, against a real server. */
class HandoffTest extends ServerTest {
    @Test
    void aHandoffWithAGapGrantsTheSuccessorAfterTheDrain() throws Exception {
        String resource = resource();
        Lease lease = client("w-1").acquire(resource);
        CompletableFuture<Duration> callback = new CompletableFuture<>();
        lease.onDraining(callback::complete);
        CompletableFuture<Lease> successor = client("w-2").acquireAsync(resource, waiting());
        until("w-2 waits", () -> hasWaiter(resource));
        lease.handoff(HandoffOptions.defaults().to("w-2").mode(HandoffMode.GAP).drain(Duration.ofSeconds(20)));
        assertTrue(callback.get(LONG.toSeconds(), TimeUnit.SECONDS).compareTo(Duration.ofSeconds(20)) <= 0);
        assertTrue(lease.isDraining());
        assertTrue(lease.isHeld(), "it may finish its work");
        assertFalse(successor.isDone());
        lease.finishDrain();
        try (Lease next = successor.get(LONG.toSeconds(), TimeUnit.SECONDS)) {
            assertTrue(next.tokenNumber() > lease.tokenNumber());
            next.waitClaimable();
        }
        assertEquals("handed_off", lease.lostFuture().get(LONG.toSeconds(), TimeUnit.SECONDS).reason());
    }

    @Test
    void inAnOverlapTheSuccessorClaimsAfterThePredecessorHasDrained() throws Exception {
        String resource = resource();
        Lease lease = client("w-1").acquire(resource);
        CompletableFuture<Lease> successor = client("w-2").acquireAsync(resource, waiting());
        until("w-2 waits", () -> hasWaiter(resource));
        lease.handoff(HandoffOptions.defaults().mode(HandoffMode.OVERLAP).drain(Duration.ofSeconds(25)));
        Lease next = successor.get(LONG.toSeconds(), TimeUnit.SECONDS);
        assertFalse(next.claimableFuture().isDone());
        lease.finishDrain();
        next.claimableFuture().get(LONG.toSeconds(), TimeUnit.SECONDS);
        next.waitClaimable();
        next.close();
    }

    @Test
    void aRevocationWithGraceIsReportedAsADrain() throws Exception {
        String resource = resource();
        Lease lease = client("w-1").acquire(resource);
        server.post("/v1/leases/" + resource + ":revoke", "{\"comment\":\"test\",\"grace\":\"20s\"}");
        lease.drainingFuture().get(LONG.toSeconds(), TimeUnit.SECONDS);
        lease.release();
    }

    @Test
    void aLeaseWithoutProgressEndsAsStalled() throws Exception {
        AcquireOptions options = AcquireOptions.defaults().requireProgress(Duration.ofSeconds(2));
        LeaseholdClient client = client("w-1");
        Lease lease = client.acquire(resource(), options);
        for (int position = 1; position <= 5; position++) {
            lease.progress(position);
            Thread.sleep(600);
        }
        assertTrue(lease.isHeld(), "after more than one window");
        assertEquals("stalled", lease.lostFuture().get(LONG.toSeconds(), TimeUnit.SECONDS).reason());
    }

    @Test
    void aLeaseEndsAfterItsLongestHold() throws Exception {
        Lease lease = client("w-1").acquire(resource(), AcquireOptions.defaults().maxHold(Duration.ofSeconds(2)));
        assertTrue(lease.remaining().compareTo(Duration.ofSeconds(2)) < 0);
        assertEquals("max_hold", lease.lostFuture().get(LONG.toSeconds(), TimeUnit.SECONDS).reason());
    }

    @Test
    void aRotatedTokenIsHigherAndStaysRenewed() throws Exception {
        Lease lease = client("w-1").acquire(resource());
        long before = lease.tokenNumber();
        String token = lease.rotate();
        assertTrue(lease.tokenNumber() > before);
        assertEquals(token, lease.token());
        Thread.sleep(4_000);
        assertTrue(lease.isHeld());
        lease.check();
        lease.close();
        assertThrows(LeaseLostException.class, lease::check);
    }
}
