package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Replies of newer servers and of servers that do not lead. */
class CompatibilityTest {
    private static final String GRANT = "{\"resource\":\"x\",\"lease\":\"1.0\",\"holder\":\"w\",\"token\":\"lh1-%s\",\"token_number\":\"%d\",\"ttl_ms\":30000,"
            + "\"remaining_ms\":30000,\"validity\":\"a validity of the future\",\"state\":\"held\",\"new_field\":{\"x\":[1]}}";

    private static LeaseholdClient client(String servers) {
        return LeaseholdClient.builder().servers(servers).holder("w").requestTimeout(Duration.ofSeconds(5)).build();
    }

    private static StubServer.Reply grant(int number) {
        return new StubServer.Reply(200, String.format(GRANT, "t" + number, number));
    }

    private static StubServer.Reply problem(int status, String code, String fields) {
        return new StubServer.Reply(status, "{\"code\":\"" + code + "\",\"detail\":\"text\",\"next_step\":\"Do it.\"" + fields + "}");
    }

    @Test
    void unknownFieldsAndWordsOfANewerServerAreIgnored() throws Exception {
        try (StubServer stub = new StubServer(path -> path.endsWith(":acquire") ? grant(1) : new StubServer.Reply(200, "{}"));
                LeaseholdClient client = client(stub.address())) {
            try (Lease lease = client.acquire("x")) {
                assertTrue(lease.isHeld());
            }
        }
    }

    @Test
    void anUnknownCodeIsTreatedByItsStatus() throws Exception {
        AtomicInteger status = new AtomicInteger(423);
        try (StubServer stub = new StubServer(path -> problem(status.get(), "A_NEW_CODE", ",\"holder\":\"w-9\"")); LeaseholdClient client = client(stub.address())) {
            BusyException busy = assertThrows(BusyException.class, () -> client.acquire("x"));
            assertEquals("A_NEW_CODE", busy.code());
            assertEquals("w-9", busy.holder().orElseThrow());
            status.set(410);
            assertThrows(LeaseLostException.class, () -> client.acquire("x"));
            status.set(418);
            assertEquals("Do it.", assertThrows(ServerFailureException.class, () -> client.acquire("x")).nextStep());
        }
    }

    @Test
    void aLeaderIsFollowedOnlyIfItIsOneOfTheConfiguredServers() throws Exception {
        try (StubServer leader = new StubServer(path -> path.endsWith(":acquire") ? grant(1) : new StubServer.Reply(200, "{}"));
                StubServer stranger = new StubServer(path -> grant(2));
                StubServer standby = new StubServer(path -> problem(503, "NOT_LEADER", ",\"leader\":\"" + leader.address() + "\""));
                StubServer misled = new StubServer(path -> problem(503, "NOT_LEADER", ",\"leader\":\"" + stranger.address() + "\""))) {
            try (LeaseholdClient client = client(standby.address() + "," + leader.address())) {
                assertEquals(1, client.acquire("x").tokenNumber());
            }
            try (LeaseholdClient client = LeaseholdClient.builder().servers(misled.address()).requestTimeout(Duration.ofMillis(500)).build()) {
                assertThrows(UnavailableException.class, () -> client.acquire("x"));
            }
            assertEquals(0, stranger.requests.size(), "no request, and no credential, reaches a server that another one named");
        }
    }

    @Test
    void anUnavailableServerIsRetriedAndNothingElseIs() throws Exception {
        AtomicInteger attempts = new AtomicInteger();
        try (StubServer stub = new StubServer(path -> path.endsWith(":acquire") && attempts.incrementAndGet() < 3
                        ? problem(503, "UNAVAILABLE", ",\"retry_after_ms\":10") : path.endsWith(":acquire") ? grant(1) : new StubServer.Reply(200, "{}"));
                LeaseholdClient client = client(stub.address())) {
            client.acquire("x").close();
            assertEquals(3, attempts.get());
        }
        AtomicInteger refused = new AtomicInteger();
        try (StubServer stub = new StubServer(path -> {
                    if (path.endsWith(":acquire")) {
                        refused.incrementAndGet();
                    }
                    return problem(409, "DEADLOCK", "");
                });
                LeaseholdClient client = client(stub.address())) {
            assertThrows(DeadlockException.class, () -> client.acquire("x"));
            assertEquals(1, refused.get());
        }
    }

    @Test
    void theHighestTokenSeenIsSentWithItsResource() throws Exception {
        AtomicInteger number = new AtomicInteger(7);
        try (StubServer stub = new StubServer(path -> path.endsWith(":acquire") ? grant(number.getAndDecrement()) : new StubServer.Reply(200, "{}"));
                LeaseholdClient client = client(stub.address())) {
            client.acquire("x");
            client.acquire("x");
            client.acquire("x");
            String last = stub.requests.stream().filter(line -> line.contains(":acquire")).reduce((a, b) -> b).orElseThrow();
            assertTrue(last.toLowerCase(java.util.Locale.ROOT).contains("lease-token-seen=[lh1-t7]"), last);
            assertTrue(last.toLowerCase(java.util.Locale.ROOT).contains("lease-token-seen-resource=[x]"), last);
            assertTrue(last.contains("Session-secret=[00]"), last);
            assertTrue(last.contains("Idempotency-key=[1.0:3]"), last);
        }
    }
}
