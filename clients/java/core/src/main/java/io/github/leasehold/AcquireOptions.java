package io.github.leasehold;

import java.time.Duration;
import java.util.Map;

/**
 * Options of an acquire. Immutable; each method returns a copy.
 *
 * <pre>{@code
 * AcquireOptions.defaults().wait(Duration.ofMinutes(1)).priority(200)
 * }</pre>
 */
public final class AcquireOptions {
    private static final AcquireOptions DEFAULTS = new AcquireOptions();

    Duration wait = Duration.ZERO;
    Duration timeout;
    Duration ttl;
    Duration maxHold;
    private Duration progress;
    String holder;
    private String metadata;
    private Integer priority;
    private Integer slots;
    private Integer units;
    private boolean shared;
    private boolean reentrant;

    private AcquireOptions() {}

    private AcquireOptions(AcquireOptions from) {
        wait = from.wait;
        timeout = from.timeout;
        ttl = from.ttl;
        maxHold = from.maxHold;
        progress = from.progress;
        holder = from.holder;
        metadata = from.metadata;
        priority = from.priority;
        slots = from.slots;
        units = from.units;
        shared = from.shared;
        reentrant = from.reentrant;
    }

    /**
     * An exclusive lease that lives as long as the client's session, without a wait.
     *
     * @return the defaults
     */
    public static AcquireOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Waits if the lease is held. Waiters are served in order of priority, then of arrival.
     *
     * @param wait the longest wait; zero fails immediately with {@link BusyException}
     * @return a copy
     */
    public AcquireOptions wait(Duration wait) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.wait = wait;
        return copy;
    }

    /**
     * Limits the whole call, including retries over all servers. After it, the outcome may be unknown.
     *
     * @param timeout the limit; by default the wait and the client's request timeout
     * @return a copy
     */
    public AcquireOptions timeout(Duration timeout) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.timeout = timeout;
        return copy;
    }

    /**
     * Gives the lease a ttl of its own. By default it lives as long as the session of the client, which costs no request per lease.
     *
     * @param ttl time until the lease expires unless renewed
     * @return a copy
     */
    public AcquireOptions ttl(Duration ttl) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.ttl = ttl;
        return copy;
    }

    /**
     * Limits how long the lease may be held, including renewals.
     *
     * @param max the limit
     * @return a copy
     */
    public AcquireOptions maxHold(Duration max) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.maxHold = max;
        return copy;
    }

    /**
     * Ends the lease as stalled if {@link Lease#progress} is not called this often.
     *
     * @param every longest time between two reports
     * @return a copy
     */
    public AcquireOptions requireProgress(Duration every) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.progress = every;
        return copy;
    }

    /**
     * Names the holder of this lease. By default every lease has an own name, so that threads of one process exclude each other.
     *
     * @param name name that others see
     * @return a copy
     */
    public AcquireOptions holder(String name) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.holder = name;
        return copy;
    }

    /**
     * Attaches text for people and for service discovery.
     *
     * @param text at most 4,096 bytes
     * @return a copy
     */
    public AcquireOptions metadata(String text) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.metadata = text;
        return copy;
    }

    /**
     * Waiters with a higher priority are served first.
     *
     * @param priority 0 to 255; 100 by default
     * @return a copy
     */
    public AcquireOptions priority(int priority) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.priority = priority;
        return copy;
    }

    /**
     * Acquires a shared (read) lease. A fence refuses its token.
     *
     * @return a copy
     */
    public AcquireOptions shared() {
        AcquireOptions copy = new AcquireOptions(this);
        copy.shared = true;
        return copy;
    }

    /**
     * Acquires one of this many numbered slots.
     *
     * @param count number of slots of the resource
     * @return a copy
     */
    public AcquireOptions slots(int count) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.slots = count;
        return copy;
    }

    /**
     * Reserves units of the resource's capacity. A fence refuses its token.
     *
     * @param units number of units
     * @return a copy
     */
    public AcquireOptions units(int units) {
        AcquireOptions copy = new AcquireOptions(this);
        copy.units = units;
        return copy;
    }

    /**
     * Enters a lease again that the same holder name already has. Use it with {@link #holder}.
     *
     * @return a copy
     */
    public AcquireOptions reentrant() {
        AcquireOptions copy = new AcquireOptions(this);
        copy.reentrant = true;
        return copy;
    }

    /** Whether the server reports the remaining time of this lease only if it is renewed by itself. */
    boolean isTimedAlone() {
        return ttl != null || maxHold != null || progress != null;
    }

    boolean hasOwnTtl() {
        return ttl != null;
    }

    /** Which part of a single resource is acquired. */
    Map<String, Object> access() {
        return Body.map("shared", shared ? true : null, "slots", slots, "units", units);
    }

    /** The options that apply to all resources of one request. */
    Map<String, Object> body(String holderName, String session) {
        return Body.map(
                "holder", holderName,
                "session", session,
                "ttl", Body.duration(ttl),
                "wait", wait.isZero() ? null : Body.duration(wait),
                "priority", priority,
                "reentrant", reentrant ? true : null,
                "max_hold", Body.duration(maxHold),
                "progress", Body.duration(progress),
                "metadata", metadata);
    }
}
