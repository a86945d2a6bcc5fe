package io.github.leasehold;

import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * Waits that the program canceled. One thread asks the server to withdraw them, in rounds, until each is decided: so a thousand canceled
 * waits need no thousand connections.
 */
final class Withdrawals {
    private static final long ROUND_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    /** A canceled wait. */
    interface Wait {
        /** Asks the server once. Returns whether nothing is left to ask: the server has withdrawn it, or its reply has arrived. */
        boolean withdraw();
    }

    private final Callbacks threads;
    private final Queue<Wait> waits = new ConcurrentLinkedQueue<>();
    private final AtomicBoolean runs = new AtomicBoolean();

    Withdrawals(Callbacks threads) {
        this.threads = threads;
    }

    void add(Wait wait) {
        waits.add(wait);
        start();
    }

    private void start() {
        if (!waits.isEmpty() && runs.compareAndSet(false, true)) {
            threads.execute(this::run);
        }
    }

    private void run() {
        try {
            while (!waits.isEmpty()) {
                List<Wait> left = new ArrayList<>();
                for (Wait wait = waits.poll(); wait != null; wait = waits.poll()) {
                    if (!wait.withdraw()) {
                        left.add(wait);
                    }
                }
                if (!left.isEmpty()) {
                    LockSupport.parkNanos(ROUND_NANOS);
                    waits.addAll(left);
                }
            }
        } finally {
            runs.set(false);
            start();
        }
    }
}
