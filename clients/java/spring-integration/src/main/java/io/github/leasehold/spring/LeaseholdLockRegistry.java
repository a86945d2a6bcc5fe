package io.github.leasehold.spring;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.LeaseholdClient;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * Spring Integration's lock registry over Leasehold, for aggregators, {@code LockRegistryLeaderInitiator} and the like.
 *
 * <p>Locks of one key exclude each other across processes and threads. A held lock is renewed by the client; if it is lost all the same,
 * {@link LeaseLock#unlock} throws {@link java.util.ConcurrentModificationException}, as the other distributed registries of Spring do.
 */
public final class LeaseholdLockRegistry implements LockRegistry {
    private final LeaseholdClient client;
    private final String prefix;
    private final AcquireOptions options;
    private final Map<String, LeaseLock> locks = new ConcurrentHashMap<>();

    /**
     * Keys become resources below {@code spring/}.
     *
     * @param client the client of this process
     */
    public LeaseholdLockRegistry(LeaseholdClient client) {
        this(client, "spring/", AcquireOptions.defaults());
    }

    /**
     * Keys become resources with this prefix.
     *
     * @param client the client of this process
     * @param prefix start of the resource's name; may be empty
     * @param options options of every lease; a wait is ignored
     */
    public LeaseholdLockRegistry(LeaseholdClient client, String prefix, AcquireOptions options) {
        this.client = client;
        this.prefix = prefix;
        this.options = options;
    }

    /**
     * The lock of a key, which exists once per registry.
     *
     * @param lockKey the key; its text names the resource
     * @return a {@link LeaseLock}
     */
    @Override
    public Lock obtain(Object lockKey) {
        return locks.computeIfAbsent(prefix + lockKey, resource -> new LeaseLock(client, resource, options));
    }
}
