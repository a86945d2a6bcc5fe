package io.github.leasehold;

/**
 * The lease was not granted within the wait time.
 */
public final class WaitTimeoutException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    WaitTimeoutException(Problem problem) {
        super(problem);
    }
}
