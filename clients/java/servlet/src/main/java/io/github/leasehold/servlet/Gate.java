package io.github.leasehold.servlet;

import io.github.leasehold.LeaseholdException;
import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Decides which request may pass. All requests in flight have the token number that is the mark. A higher token raises the mark only when no
 * request is in flight and no outcome is unknown: then no lower token can change the target after it.
 */
final class Gate {
    private final ReentrantLock lock = new ReentrantLock(true);
    private final Condition changed = lock.newCondition();
    private final MarkFile file;
    private final long settleNanos;
    private int inFlight;
    private int raisers;
    private long unknownUntil;
    private boolean isUnknown;
    private boolean closed;

    Gate(MarkFile file, Duration settleTime) {
        this.file = file;
        settleNanos = settleTime.toNanos();
        if (file.mayBeInFlight()) {
            markUnknown();
        }
    }

    /** A request that has passed, until its outcome is known. */
    final class Passage {
        private final AtomicBoolean left = new AtomicBoolean();

        /** The response is complete; {@code known} says whether the request has certainly ended. Later calls do nothing. */
        void leave(boolean known) {
            if (!left.compareAndSet(false, true)) {
                return;
            }
            lock.lock();
            try {
                inFlight--;
                if (!known) {
                    markUnknown();
                }
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }
    }

    void claim(long number, Duration timeout) {
        lock.lock();
        try {
            raise(number, timeout.toNanos());
        } finally {
            lock.unlock();
        }
    }

    Passage enter(long number, Duration timeout) {
        lock.lock();
        try {
            raise(number, timeout.toNanos());
            if (!file.mayBeInFlight()) {
                store(number, true);
            }
            inFlight++;
            return new Passage();
        } finally {
            lock.unlock();
        }
    }

    void close() {
        lock.lock();
        try {
            if (!closed) {
                closed = true;
                file.close(inFlight == 0 && !isUnknown());
            }
        } finally {
            lock.unlock();
        }
    }

    /** Waits until the token is at the mark, or is refused. Requests with the mark's own token wait behind a higher one that is waiting. */
    private void raise(long number, long nanos) {
        long left = nanos;
        boolean waiting = false;
        try {
            while (true) {
                requireUsable();
                if (number < file.mark()) {
                    throw LeaseholdException.of("STALE_TOKEN", "a later holder has claimed", "Stop writing. The lease of this token has ended.",
                            Map.of("field", "lease-token", "presented", Long.toString(number), "mark", Long.toString(file.mark())), null);
                }
                if (number == file.mark() && (raisers == 0 || waiting)) {
                    return;
                }
                if (number > file.mark() && inFlight == 0 && !isUnknown()) {
                    store(number, false);
                    return;
                }
                if (number > file.mark() && !waiting) {
                    waiting = true;
                    raisers++;
                }
                if (left <= 0) {
                    throw blocked();
                }
                long settle = isUnknown() ? Math.max(1, unknownUntil - System.nanoTime()) : left;
                long slept = Math.min(left, settle);
                left -= slept - Math.max(0, changed.awaitNanos(slept));
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw blocked();
        } finally {
            if (waiting) {
                raisers--;
                changed.signalAll();
            }
        }
    }

    private LeaseholdException blocked() {
        String cause = inFlight > 0 ? inFlight + " requests with a lower token are in flight" : "the outcome of a request with a lower token is unknown";
        long retry = isUnknown() ? TimeUnit.NANOSECONDS.toMillis(unknownUntil - System.nanoTime()) + 1 : 1_000;
        return LeaseholdException.of("UNAVAILABLE", cause + "; nothing changed, retry later", "Retry the same request later.",
                Map.of("field", "lease-token", "reason", "gate closed", "retry_after_ms", retry), null);
    }

    private void requireUsable() {
        if (closed || !file.isUsable()) {
            throw LeaseholdException.of("STORAGE_FAILED", "the mark of the fence cannot be used", "Check the mark file, and restart the process.", Map.of(), null);
        }
    }

    private void store(long number, boolean mayBeInFlight) {
        try {
            file.store(number, mayBeInFlight);
        } catch (IOException failed) {
            throw LeaseholdException.of("STORAGE_FAILED", "the mark cannot be stored: " + failed.getMessage(), "Check the disk.", Map.of(), failed);
        }
    }

    private void markUnknown() {
        isUnknown = true;
        unknownUntil = System.nanoTime() + settleNanos;
    }

    private boolean isUnknown() {
        if (isUnknown && System.nanoTime() >= unknownUntil) {
            isUnknown = false;
        }
        return isUnknown;
    }
}
