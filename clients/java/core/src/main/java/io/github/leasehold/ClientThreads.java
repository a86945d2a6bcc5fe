package io.github.leasehold;

import java.lang.reflect.Method;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Threads of a client. Requests of the program and its callbacks run on virtual threads where the platform has them (Java 21), otherwise
 * on a pool of daemon threads. The threads that renew and watch deadlines are always daemon platform threads, which run nothing else.
 */
final class ClientThreads {
    private ClientThreads() {}

    static ExecutorService requests() {
        try {
            Method factory = Executors.class.getMethod("newVirtualThreadPerTaskExecutor");
            return (ExecutorService) factory.invoke(null);
        } catch (ReflectiveOperationException beforeJava21) {
            AtomicInteger number = new AtomicInteger();
            return new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(),
                    task -> daemon(task, "leasehold-request-" + number.incrementAndGet()));
        }
    }

    static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }
}
