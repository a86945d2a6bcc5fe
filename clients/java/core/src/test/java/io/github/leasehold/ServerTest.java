package io.github.leasehold;

import io.github.leasehold.testkit.LeaseholdServer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;

/** Base of the tests that run against a real server. The classes share one server; each test uses resources of its own. */
abstract class ServerTest {
    static final Duration LONG = Duration.ofSeconds(40);
    private static final AtomicInteger NAMES = new AtomicInteger();

    static LeaseholdServer server;
    private final List<LeaseholdClient> clients = new ArrayList<>();

    @BeforeAll
    static void startServer() {
        server = LeaseholdServer.start();
    }

    @AfterAll
    static void stopServer() {
        server.close();
    }

    @AfterEach
    void closeClients() {
        clients.forEach(LeaseholdClient::close);
    }

    /** A client that is closed after the test. */
    LeaseholdClient client(String holder) {
        return keep(builder(holder).build());
    }

    LeaseholdClient keep(LeaseholdClient client) {
        clients.add(client);
        return client;
    }

    static ClientBuilder builder(String holder) {
        return LeaseholdClient.builder().servers(server.address()).holder(holder).sessionTtl(Duration.ofSeconds(3));
    }

    /** A resource that no other test uses. */
    static String resource() {
        return "test/" + NAMES.incrementAndGet();
    }

    static AcquireOptions waiting() {
        return AcquireOptions.defaults().wait(LONG);
    }

    /** Waits for a condition, with a generous upper bound. */
    static void until(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + LONG.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("never happened: " + what);
            }
            Thread.sleep(10);
        }
    }

    static boolean hasWaiter(String resource) {
        return server.get("/v1/waiters/" + resource).contains("\"holder\"");
    }
}
