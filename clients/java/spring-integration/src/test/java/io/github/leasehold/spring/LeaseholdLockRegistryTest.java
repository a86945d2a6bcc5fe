package io.github.leasehold.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.testkit.LeaseholdServer;
import java.util.ConcurrentModificationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;

/** The lock registry in the real Spring Integration, with two processes' clients and a real server. */
class LeaseholdLockRegistryTest {
    private static LeaseholdServer server;
    private static LeaseholdClient first;
    private static LeaseholdClient second;

    @BeforeAll
    static void startServer() {
        server = LeaseholdServer.start();
        first = client("node-1");
        second = client("node-2");
    }

    private static LeaseholdClient client(String holder) {
        return LeaseholdClient.builder().servers(server.address()).holder(holder).build();
    }

    @AfterAll
    static void stopServer() {
        first.close();
        second.close();
        server.close();
    }

    @Test
    void aLockExcludesOtherProcessesAndThreads() throws Exception {
        LeaseholdLockRegistry registry = new LeaseholdLockRegistry(first);
        Lock lock = registry.obtain("a");
        Lock other = new LeaseholdLockRegistry(second).obtain("a");
        assertSame(lock, registry.obtain("a"));
        lock.lock();
        assertTrue(((LeaseLock) lock).lease().orElseThrow().isHeld());
        assertFalse(other.tryLock());
        assertFalse(other.tryLock(100, TimeUnit.MILLISECONDS));
        ExecutorService thread = Executors.newSingleThreadExecutor();
        assertFalse(thread.submit(() -> lock.tryLock()).get(), "another thread of this process");
        assertTrue(lock.tryLock(), "the same thread enters again");
        lock.unlock();
        assertFalse(other.tryLock());
        CompletableFuture<Void> waiting = CompletableFuture.runAsync(() -> {
            other.lock();
            other.unlock();
        });
        thread.submit(lock::unlock).get();
        waiting.get(60, TimeUnit.SECONDS);
        thread.shutdown();
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void springRunsWorkUnderTheLock() throws Exception {
        LeaseholdLockRegistry registry = new LeaseholdLockRegistry(first);
        String seen = registry.executeLocked("b", () -> second.tryAcquire("spring/b", io.github.leasehold.AcquireOptions.defaults()).isPresent() ? "free" : "locked");
        assertEquals("locked", seen);
        assertTrue(second.tryAcquire("spring/b", io.github.leasehold.AcquireOptions.defaults()).isPresent());
    }

    @Test
    void aLostLockIsReportedByUnlockAndNotEnteredAgain() throws Exception {
        Lock lock = new LeaseholdLockRegistry(first).obtain("c");
        lock.lock();
        io.github.leasehold.Lease lease = ((LeaseLock) lock).lease().orElseThrow();
        server.post("/v1/leases/spring/c:revoke", "{\"comment\":\"test\"}");
        assertThrows(io.github.leasehold.LeaseLostException.class, lease::check);
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        lock.lock();
        lock.unlock();
    }

    @Test
    void springElectsOneLeaderAndAnotherAfterIt() throws Exception {
        CountDownLatch firstLeads = new CountDownLatch(1);
        CountDownLatch secondLeads = new CountDownLatch(1);
        LockRegistryLeaderInitiator one = initiator(first, firstLeads);
        LockRegistryLeaderInitiator two = initiator(second, secondLeads);
        one.start();
        assertTrue(firstLeads.await(60, TimeUnit.SECONDS));
        two.start();
        assertFalse(secondLeads.await(300, TimeUnit.MILLISECONDS));
        Context context = one.getContext();
        assertTrue(context.isLeader());
        one.stop();
        assertTrue(secondLeads.await(60, TimeUnit.SECONDS));
        two.stop();
    }

    private static LockRegistryLeaderInitiator initiator(LeaseholdClient client, CountDownLatch leads) {
        LockRegistryLeaderInitiator initiator = new LockRegistryLeaderInitiator(new LeaseholdLockRegistry(client), new DefaultCandidate("id", "role") {
            @Override
            public void onGranted(Context context) {
                leads.countDown();
            }
        });
        initiator.setHeartBeatMillis(50);
        initiator.setBusyWaitMillis(20);
        return initiator;
    }
}
