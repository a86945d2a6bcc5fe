package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.testkit.FaultProxy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;

/**
 * Programs on virtual threads. The client is compiled for Java 17, where there are none: {@code check} runs these tests with a later
 * platform.
 */
@EnabledForJreRange(minVersion = 24)
class VirtualThreadsTest extends ServerTest {
    private ExecutorService virtual;

    @BeforeEach
    void startThreads() throws ReflectiveOperationException {
        virtual = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    @AfterEach
    void stopThreads() {
        virtual.shutdownNow();
    }

    @Test
    void workStopsAtItsDeadlineWhileEveryCarrierIsBusy() throws Exception {
        try (FaultProxy proxy = FaultProxy.start(server.address())) {
            LeaseholdClient client = keep(builder("w-1").servers(proxy.address()).build());
            Lease lease = client.acquire(resource());
            AtomicBoolean ended = new AtomicBoolean();
            CountDownLatch spinning = new CountDownLatch(Runtime.getRuntime().availableProcessors());
            for (int i = 0; i < Runtime.getRuntime().availableProcessors(); i++) {
                virtual.execute(() -> {
                    spinning.countDown();
                    while (!ended.get()) {
                        Thread.onSpinWait();
                    }
                });
            }
            spinning.await();
            try {
                // Longer than two ttls: the lease is renewed although no virtual thread runs.
                assertEquals("renewed", lease.run(() -> {
                    Thread.sleep(7_000);
                    return "renewed";
                }));
                assertThrows(LeaseSuspendedException.class, () -> lease.run(() -> {
                    proxy.cut(true);
                    Thread.sleep(LONG.toMillis());
                    return "not reached";
                }));
            } finally {
                ended.set(true);
            }
        }
    }

    @Test
    void virtualThreadsThatAcquireInsideOfSynchronizedDoNotStarveTheirRequests() throws Exception {
        LeaseholdClient client = client("w-1");
        String resource = resource();
        Callable<Long> work = () -> {
            Object monitor = new Object();
            synchronized (monitor) {
                try (Lease lease = client.acquire(resource, waiting())) {
                    return lease.tokenNumber();
                }
            }
        };
        List<Future<Long>> all = new ArrayList<>();
        for (int i = 0; i < 64; i++) {
            all.add(virtual.submit(work));
        }
        for (Future<Long> one : all) {
            assertTrue(one.get(LONG.toSeconds(), TimeUnit.SECONDS) > 0);
        }
        assertEquals(64, all.stream().map(VirtualThreadsTest::value).distinct().count(), "each had a token of its own");
    }

    private static long value(Future<Long> done) {
        try {
            return done.get();
        } catch (InterruptedException | ExecutionException failed) {
            throw new IllegalStateException(failed);
        }
    }

    @Test
    void interruptingAVirtualThreadWithdrawsItsWait() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        Lease held = client.acquire(resource);
        Future<Lease> waiting = virtual.submit(() -> client.acquire(resource, waiting()));
        until("it waits", () -> hasWaiter(resource));
        waiting.cancel(true);
        until("the wait is withdrawn", () -> !hasWaiter(resource));
        held.close();
        client("w-2").acquire(resource).close();
    }

    @Test
    void aLeaseIsReleasedByAnotherVirtualThread() throws Exception {
        LeaseholdClient client = client("w-1");
        String resource = resource();
        Lease lease = virtual.submit(() -> client.acquire(resource)).get();
        virtual.submit(lease::close).get();
        virtual.submit(() -> client.acquire(resource)).get().close();
    }
}
