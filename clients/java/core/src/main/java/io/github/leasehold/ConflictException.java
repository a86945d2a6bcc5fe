package io.github.leasehold;

/**
 * The request contradicts the current state, or its idempotency key was used for another request.
 */
public final class ConflictException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    ConflictException(Problem problem) {
        super(problem);
    }
}
