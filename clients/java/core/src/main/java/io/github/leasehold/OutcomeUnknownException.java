package io.github.leasehold;

import java.time.Duration;

/**
 * The reply was lost after the request was sent: it is unknown whether the server executed it. This is neither success nor failure.
 */
public final class OutcomeUnknownException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    private final transient PendingOutcome<?> pending;

    OutcomeUnknownException(Problem problem, PendingOutcome<?> pending) {
        super(problem);
        this.pending = pending;
    }

    /**
     * Sends the same request under the same key again, which returns the outcome of the first one and executes nothing twice.
     *
     * @param <T> type of the result: {@link Lease} for an acquire, the list of leases for several
     * @param timeout how long to try
     * @return the outcome of the request
     * @throws OutcomeUnknownException if no server answered within the timeout; it can be resolved again
     * @throws LeaseholdException if the request was refused
     * @throws InterruptedException if the thread is interrupted; the outcome can still be resolved
     */
    @SuppressWarnings("unchecked")
    public <T> T resolve(Duration timeout) throws InterruptedException {
        if (pending == null) {
            throw this;
        }
        return (T) pending.resolve(timeout);
    }

    /**
     * Whether {@link #resolve} can find out the outcome.
     *
     * @return false if the request had no key; read the current state instead
     */
    public boolean isResolvable() {
        return pending != null;
    }
}
