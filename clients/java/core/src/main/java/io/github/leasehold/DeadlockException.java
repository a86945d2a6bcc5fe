package io.github.leasehold;

/**
 * The wait would complete a deadlock. Release what you hold, then retry.
 */
public final class DeadlockException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    DeadlockException(Problem problem) {
        super(problem);
    }
}
