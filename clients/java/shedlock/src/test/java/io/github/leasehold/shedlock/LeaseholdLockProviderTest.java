package io.github.leasehold.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.Lease;
import io.github.leasehold.LeaseState;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.testkit.LeaseholdServer;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The lock provider in the real ShedLock, with two nodes and a real server. */
class LeaseholdLockProviderTest {
    private static LeaseholdServer server;
    private static LeaseholdClient first;
    private static LeaseholdClient second;

    @BeforeAll
    static void startServer() {
        server = LeaseholdServer.start();
        first = LeaseholdClient.builder().servers(server.address()).holder("node-1").build();
        second = LeaseholdClient.builder().servers(server.address()).holder("node-2").build();
    }

    @AfterAll
    static void stopServer() {
        first.close();
        second.close();
        server.close();
    }

    private static LockConfiguration lock(String name, Duration most, Duration least) {
        return new LockConfiguration(Instant.now(), name, most, least);
    }

    @Test
    void aTaskRunsAtOneNodeAtATime() throws Throwable {
        DefaultLockingTaskExecutor one = new DefaultLockingTaskExecutor(new LeaseholdLockProvider(first));
        DefaultLockingTaskExecutor two = new DefaultLockingTaskExecutor(new LeaseholdLockProvider(second));
        AtomicInteger runs = new AtomicInteger();
        AtomicReference<String> token = new AtomicReference<>();
        CountDownLatch started = new CountDownLatch(1);
        CountDownLatch finish = new CountDownLatch(1);
        Thread node = new Thread(() -> one.executeWithLock((Runnable) () -> {
            runs.incrementAndGet();
            token.set(LeaseholdLockProvider.currentLease().map(Lease::token).orElse(""));
            started.countDown();
            try {
                finish.await();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }, lock("settle", Duration.ofMinutes(1), Duration.ZERO)));
        node.start();
        started.await();
        two.executeWithLock((Runnable) runs::incrementAndGet, lock("settle", Duration.ofMinutes(1), Duration.ZERO));
        assertEquals(1, runs.get(), "the second node skips the task");
        assertTrue(token.get().startsWith("lh1-"), "the task has the token for its writes");
        finish.countDown();
        node.join();
        assertTrue(LeaseholdLockProvider.currentLease().isEmpty());
        two.executeWithLock((Runnable) runs::incrementAndGet, lock("settle", Duration.ofMinutes(1), Duration.ZERO));
        assertEquals(2, runs.get());
    }

    @Test
    void theLockIsKeptForAtLeastItsTime() throws Exception {
        LeaseholdLockProvider one = new LeaseholdLockProvider(first);
        LeaseholdLockProvider two = new LeaseholdLockProvider(second);
        long locked = System.nanoTime();
        one.lock(lock("short", Duration.ofMinutes(1), Duration.ofSeconds(1))).orElseThrow().unlock();
        Optional<SimpleLock> other = two.lock(lock("short", Duration.ofMinutes(1), Duration.ZERO));
        while (other.isEmpty()) {
            other = two.lock(lock("short", Duration.ofMinutes(1), Duration.ZERO));
        }
        assertTrue(System.nanoTime() - locked >= Duration.ofMillis(990).toNanos());
        other.get().unlock();
    }

    @Test
    void theLockEndsAfterAtMostItsTime() throws Exception {
        Optional<SimpleLock> stuck = new LeaseholdLockProvider(first).lock(lock("stuck", Duration.ofSeconds(1), Duration.ZERO));
        Lease lease = LeaseholdLockProvider.currentLease().orElseThrow();
        LeaseholdLockProvider two = new LeaseholdLockProvider(second);
        Optional<SimpleLock> other = Optional.empty();
        while (other.isEmpty()) {
            other = two.lock(lock("stuck", Duration.ofMinutes(1), Duration.ZERO));
        }
        assertFalse(lease.state() == LeaseState.HELD, "the first node knew before");
        other.get().unlock();
        stuck.orElseThrow().unlock();
    }
}
