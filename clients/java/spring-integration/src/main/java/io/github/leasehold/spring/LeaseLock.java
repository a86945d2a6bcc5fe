package io.github.leasehold.spring;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.BusyException;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.LeaseholdException;
import io.github.leasehold.WaitTimeoutException;
import java.time.Duration;
import java.util.Collections;
import java.util.ConcurrentModificationException;
import java.util.Optional;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock on a resource. The thread that locked it may lock it again; any thread may unlock it, because the lock belongs to the token and not
 * to a thread. Write with the token of {@link #lease}.
 */
public final class LeaseLock implements Lock {
    private static final Duration ROUND = Duration.ofMinutes(1);

    private final LeaseholdClient client;
    private final String resource;
    private final AcquireOptions options;
    // Guarded by this object's monitor, which is not held during I/O.
    private Lease lease;
    private Thread locker;
    private int holds;
    /** Threads whose lock was lost, and which have not noticed yet: their unlock must not release the lock of another thread. */
    private final Set<Thread> losers = Collections.newSetFromMap(new WeakHashMap<>());

    LeaseLock(LeaseholdClient client, String resource, AcquireOptions options) {
        this.client = client;
        this.resource = resource;
        this.options = options;
    }

    /**
     * The lease of the current holder in this process.
     *
     * @return the lease, with the token for every write; empty if this process does not hold the lock
     */
    public synchronized Optional<Lease> lease() {
        return Optional.ofNullable(lease);
    }

    @Override
    public void lock() {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    lockInterruptibly();
                    return;
                } catch (InterruptedException later) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        while (!tryLock(ROUND.toMillis(), TimeUnit.MILLISECONDS)) {
            // Waits again, behind those that came meanwhile.
        }
    }

    @Override
    public boolean tryLock() {
        try {
            return tryLock(0, TimeUnit.MILLISECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        if (enterAgain()) {
            return true;
        }
        try {
            Lease acquired = client.acquire(resource, options.wait(Duration.ofNanos(Math.max(0, unit.toNanos(time)))));
            synchronized (this) {
                if (lease != null && locker != null) {
                    losers.add(locker);
                }
                losers.remove(Thread.currentThread());
                lease = acquired;
                locker = Thread.currentThread();
                holds = 1;
            }
            return true;
        } catch (BusyException | WaitTimeoutException held) {
            return false;
        }
    }

    /** A lock that was lost is not entered again: its caller must notice. */
    private synchronized boolean enterAgain() {
        if (lease == null || locker != Thread.currentThread()) {
            return false;
        }
        if (!lease.isHeld()) {
            lease.releaseAsync();
            lease = null;
            holds = 0;
            return false;
        }
        holds++;
        return true;
    }

    @Override
    public void unlock() {
        Lease released;
        synchronized (this) {
            if (lease == null || losers.remove(Thread.currentThread())) {
                throw new ConcurrentModificationException("the lock on " + resource + " is not held: it was lost or unlocked before; what it protects may have changed");
            }
            if (--holds > 0) {
                return;
            }
            released = lease;
            lease = null;
            locker = null;
        }
        boolean lost = !released.isHeld();
        try {
            released.release();
        } catch (LeaseholdException notConfirmed) {
            // The lease expires by its ttl.
        }
        if (lost) {
            throw new ConcurrentModificationException("the lock on " + resource + " was lost while it was held; what it protects may have changed");
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a distributed lock has no conditions");
    }

    @Override
    public String toString() {
        return "LeaseLock[" + resource + "]";
    }
}
