package io.github.leasehold;

import java.lang.reflect.Method;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Threads of a client. Requests of the program run on virtual threads from Java 24, otherwise on a pool of daemon threads: before Java 24 a
 * virtual thread that waits inside of {@code synchronized} occupies its carrier, so that programs which acquire there could wait for requests
 * that never get one. The threads that renew, watch deadlines and run callbacks are always daemon platform threads.
 */
final class ClientThreads {
    private static final int UNPINNED_BY_MONITORS = 24;

    private ClientThreads() {}

    static ExecutorService requests() {
        if (Runtime.version().feature() >= UNPINNED_BY_MONITORS) {
            try {
                Method factory = Executors.class.getMethod("newVirtualThreadPerTaskExecutor");
                return (ExecutorService) factory.invoke(null);
            } catch (ReflectiveOperationException unknownPlatform) {
                // The pool below works everywhere.
            }
        }
        return platform("leasehold-request");
    }

    /** A thread for each task; idle ones end after 10 s. */
    static ExecutorService platform(String name) {
        AtomicInteger number = new AtomicInteger();
        return new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(),
                task -> daemon(task, name + "-" + number.incrementAndGet()));
    }

    /** A daemon thread that keeps nothing of the thread that created it. */
    static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(null, task, name, 0, false);
        thread.setDaemon(true);
        thread.setPriority(Thread.NORM_PRIORITY);
        return thread;
    }
}
