package io.github.leasehold;

/**
 * A limit is exceeded. Request less, or release something.
 */
public final class LimitExceededException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    LimitExceededException(Problem problem) {
        super(problem);
    }
}
