package io.github.leasehold;

import java.time.Duration;

/** Options of a planned handoff. Immutable; each method returns a copy. */
public final class HandoffOptions {
    private static final HandoffOptions DEFAULTS = new HandoffOptions(null, null, null);

    private final String successor;
    private final HandoffMode mode;
    private final Duration drain;

    private HandoffOptions(String successor, HandoffMode mode, Duration drain) {
        this.successor = successor;
        this.mode = mode;
        this.drain = drain;
    }

    /**
     * To the first waiter, as the charter declares.
     *
     * @return the defaults
     */
    public static HandoffOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Chooses the successor.
     *
     * @param holder name of the holder that waits for the lease
     * @return a copy
     */
    public HandoffOptions to(String holder) {
        return new HandoffOptions(holder, mode, drain);
    }

    /**
     * Chooses how the lease passes.
     *
     * @param mode gap or overlap
     * @return a copy
     */
    public HandoffOptions mode(HandoffMode mode) {
        return new HandoffOptions(successor, mode, drain);
    }

    /**
     * Limits how long this holder may drain.
     *
     * @param drain the drain period
     * @return a copy
     */
    public HandoffOptions drain(Duration drain) {
        return new HandoffOptions(successor, mode, drain);
    }

    String body() {
        return Body.object("to", successor, "mode", mode == null ? null : mode.word(), "drain", Body.duration(drain));
    }
}
