package io.github.leasehold;

import java.util.Optional;

/**
 * The lease has ended ({@code LEASE_LOST}), or this token does not hold it ({@code NOT_CURRENT}). Stop writing.
 */
public final class LeaseLostException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    LeaseLostException(Problem problem) {
        super(problem);
    }

    /**
     * How the lease ended.
     *
     * @return {@code expired}, {@code released} or {@code revoked}; empty if its end is not known
     */
    public Optional<String> state() {
        return field("state");
    }

    /**
     * Why the lease ended.
     *
     * @return the reason, as listed in the reference of errors
     */
    public Optional<String> reason() {
        return field("reason");
    }

    /**
     * The end of the lease as a value.
     *
     * @return state and reason
     */
    public Loss loss() {
        return new Loss(state().orElse("not_current"), reason().orElse("unknown"));
    }
}
