package io.github.leasehold;

/**
 * The server failed, or replied with something that this version does not understand.
 */
public final class ServerFailureException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    ServerFailureException(Problem problem) {
        super(problem);
    }
}
