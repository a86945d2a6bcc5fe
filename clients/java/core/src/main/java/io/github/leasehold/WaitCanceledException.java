package io.github.leasehold;

/**
 * The wait was canceled.
 */
public final class WaitCanceledException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    WaitCanceledException(Problem problem) {
        super(problem);
    }
}
