package io.github.leasehold;

/**
 * The local deadline passed before the lease was renewed, and the work was stopped. A successor may start at any moment.
 */
public final class LeaseSuspendedException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    LeaseSuspendedException(Problem problem) {
        super(problem);
    }

    @Override
    public boolean isRetryable() {
        return true;
    }
}
