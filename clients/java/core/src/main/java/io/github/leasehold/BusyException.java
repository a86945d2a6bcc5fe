package io.github.leasehold;

import java.time.Duration;
import java.util.Optional;

/**
 * Another holder has the lease ({@code BUSY}), or it is reserved for an operator ({@code HELD_FOR_OPERATOR}).
 */
public final class BusyException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    BusyException(Problem problem) {
        super(problem);
    }

    /**
     * The holder that has the lease.
     *
     * @return its name; empty if the caller may not see it
     */
    public Optional<String> holder() {
        return field("holder");
    }

    /**
     * How long that holder has had the lease.
     *
     * @return the time; empty if the server did not say
     */
    public Optional<Duration> held() {
        return millis("held_ms");
    }

    /**
     * How long the lease remains unless renewed.
     *
     * @return the time; empty if the server did not say
     */
    public Optional<Duration> remaining() {
        return millis("remaining_ms");
    }
}
