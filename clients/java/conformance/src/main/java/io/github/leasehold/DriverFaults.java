package io.github.leasehold;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicLong;

/** What a scenario can break or move: the user's threads, the clock, and properties of the client. */
final class DriverFaults {
    private final int processors = Runtime.getRuntime().availableProcessors();
    /** The user's side: threads that a program would use for its own work. */
    private final ExecutorService users = Executors.newFixedThreadPool(processors, task -> ClientThreads.daemon(task, "user"));
    private final AtomicLong jumped = new AtomicLong();
    private volatile boolean renewsOnUserThreads;
    private volatile boolean deadlineFromReply;
    private volatile boolean sendsNoToken;

    void breakProperty(String property) {
        switch (property) {
            case "renewal_on_main_loop" -> renewsOnUserThreads = true;
            case "deadline_from_reply" -> deadlineFromReply = true;
            case "no_token" -> sendsNoToken = true;
            default -> throw new DriverException("DRIVER", "unknown property " + property);
        }
    }

    boolean sendsNoToken() {
        return sendsNoToken;
    }

    void advanceClock(long millis) {
        jumped.addAndGet(millis * 1_000_000);
    }

    void apply(ClientBuilder builder) {
        builder.clock(() -> HolderClock.system().nanos() + jumped.get());
        if (deadlineFromReply) {
            builder.deadlineOrigin((sent, received) -> received);
        }
        if (renewsOnUserThreads) {
            builder.renewalExecutor(task -> {
                try {
                    users.submit(task).get();
                } catch (Exception ended) {
                    throw new IllegalStateException(ended);
                }
            });
        }
    }

    /** Spins on every thread of the user's side and of the common pool. */
    void block(long millis) {
        long until = System.nanoTime() + millis * 1_000_000;
        Runnable spin = () -> {
            while (System.nanoTime() < until) {
                Thread.onSpinWait();
            }
        };
        for (int i = 0; i < processors; i++) {
            users.execute(spin);
            ForkJoinPool.commonPool().execute(spin);
        }
        spin.run();
    }
}
