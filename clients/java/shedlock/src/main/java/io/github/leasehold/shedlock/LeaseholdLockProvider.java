package io.github.leasehold.shedlock;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * ShedLock over Leasehold: a scheduled task runs at one node at a time.
 *
 * <p>While the task runs, its lease is renewed; it ends after {@code lockAtMostFor} in any case, or one session ttl after the node died.
 * Until {@code lockAtLeastFor} has passed, the lease is kept; it ends earlier if the client is closed. {@link #currentLease} gives the task
 * its lease, whose token it presents with every write.
 */
public final class LeaseholdLockProvider implements LockProvider {
    private static final ThreadLocal<Lease> CURRENT = new ThreadLocal<>();

    private final LeaseholdClient client;
    private final String prefix;

    /**
     * Names of locks become resources below {@code shedlock/}.
     *
     * @param client the client of this process
     */
    public LeaseholdLockProvider(LeaseholdClient client) {
        this(client, "shedlock/");
    }

    /**
     * Names of locks become resources with this prefix.
     *
     * @param client the client of this process
     * @param prefix start of the resource's name; may be empty
     */
    public LeaseholdLockProvider(LeaseholdClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    /**
     * The lease of the task that runs in this thread. For convenience only: ownership is bound to the token, not to the thread.
     *
     * @return the lease; empty outside of a locked task
     */
    public static Optional<Lease> currentLease() {
        return Optional.ofNullable(CURRENT.get());
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        Duration most = Duration.between(ClockProvider.now(), configuration.getLockAtMostUntil());
        if (most.toMillis() < 1) {
            return Optional.empty();
        }
        try {
            Optional<Lease> lease = client.tryAcquire(prefix + configuration.getName(), AcquireOptions.defaults().maxHold(most));
            lease.ifPresent(CURRENT::set);
            return lease.map(held -> new LeaseLock(configuration, held));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new LockException("interrupted while acquiring " + configuration.getName(), interrupted);
        }
    }

    private static final class LeaseLock extends AbstractSimpleLock {
        private final Lease lease;

        LeaseLock(LockConfiguration configuration, Lease lease) {
            super(configuration);
            this.lease = lease;
        }

        @Override
        protected void doUnlock() {
            if (CURRENT.get() == lease) {
                CURRENT.remove();
            }
            long keepMillis = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil()).toMillis();
            if (keepMillis <= 0) {
                lease.close();
            } else {
                CompletableFuture.delayedExecutor(keepMillis, TimeUnit.MILLISECONDS, Runnable::run).execute(lease::releaseAsync);
            }
        }
    }
}
