package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.testkit.FaultProxy;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Replies that are lost after the server acted: the same request under the same key has the same outcome. */
class LostReplyTest extends ServerTest {
    @Test
    void aLostReplyIsResolvedToTheSameGrant() throws Exception {
        String resource = resource();
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").servers(proxy.address()).build());
            client.acquire(resource()).close();
            proxy.loseReplies(true);
            CompletableFuture<Lease> acquiring = client.acquireAsync(resource, AcquireOptions.defaults());
            until("the server has granted it", () -> server.get("/v1/leases/" + resource).contains("\"held\":1"));
            proxy.loseReplies(false);
            Lease lease = acquiring.get(LONG.toSeconds(), TimeUnit.SECONDS);
            assertTrue(server.get("/v1/leases/" + resource).contains("\"" + lease.tokenNumber() + "\""), "one grant, not two");
        }
    }

    @Test
    void anUnknownOutcomeCanBeResolvedLater() throws Exception {
        String resource = resource();
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").sessionTtl(Duration.ofSeconds(30)).servers(proxy.address()).build());
            client.acquire(resource()).close();
            proxy.loseReplies(true);
            OutcomeUnknownException unknown = assertThrows(
                    OutcomeUnknownException.class, () -> client.acquire(resource, AcquireOptions.defaults().timeout(Duration.ofMillis(500))));
            assertTrue(unknown.isResolvable());
            assertTrue(unknown.field("request_id").orElseThrow().matches("\\d+\\.\\d+:\\d+"));
            assertThrows(OutcomeUnknownException.class, () -> unknown.resolve(Duration.ofMillis(200)));
            proxy.loseReplies(false);
            Lease lease = unknown.resolve(LONG);
            assertEquals(resource, lease.resource());
            assertTrue(lease.isHeld());
            assertTrue(server.get("/v1/leases/" + resource).contains("\"" + lease.tokenNumber() + "\""));
        }
    }

    @Test
    void aCanceledRequestWhoseReplyIsLostLeavesNoLease() throws Exception {
        String resource = resource();
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").sessionTtl(Duration.ofSeconds(30)).servers(proxy.address()).build());
            client.acquire(resource()).close();
            proxy.loseReplies(true);
            CompletableFuture<Lease> acquiring = client.acquireAsync(resource, AcquireOptions.defaults());
            until("the server has granted it", () -> server.get("/v1/leases/" + resource).contains("\"held\":1"));
            acquiring.cancel(true);
            proxy.loseReplies(false);
            client("w-2").acquire(resource, waiting()).close();
        }
    }

    @Test
    void aWaitSurvivesABrokenConnection() throws Exception {
        String resource = resource();
        Lease held = client("w-0").acquire(resource);
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").sessionTtl(Duration.ofSeconds(30)).servers(proxy.address()).build());
            client.acquire(resource()).close();
            CompletableFuture<Lease> waiting = client.acquireAsync(resource, waiting());
            until("it waits", () -> hasWaiter(resource));
            proxy.cut(true);
            proxy.cut(false);
            held.close();
            try (Lease lease = waiting.get(LONG.toSeconds(), TimeUnit.SECONDS)) {
                assertTrue(lease.isHeld());
            }
        }
    }

    @Test
    void aReleaseWhoseReplyIsLostSucceeds() throws Exception {
        String resource = resource();
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").sessionTtl(Duration.ofSeconds(30)).servers(proxy.address()).build());
            Lease lease = client.acquire(resource);
            proxy.loseReplies(true);
            CompletableFuture<Void> releasing = lease.releaseAsync();
            until("the server has released it", () -> !server.get("/v1/leases/" + resource).contains("\"held\":1"));
            proxy.loseReplies(false);
            releasing.get(LONG.toSeconds(), TimeUnit.SECONDS);
        }
    }
}
