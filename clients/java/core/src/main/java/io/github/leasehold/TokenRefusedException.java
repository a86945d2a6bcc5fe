package io.github.leasehold;

/**
 * A token is missing, malformed, implausible, or of another resource, cluster or incarnation. Nothing was written.
 */
public final class TokenRefusedException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    TokenRefusedException(Problem problem) {
        super(problem);
    }
}
