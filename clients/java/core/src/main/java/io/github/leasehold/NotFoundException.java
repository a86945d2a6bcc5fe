package io.github.leasehold;

/**
 * The subject does not exist, or the caller may not see it.
 */
public final class NotFoundException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    NotFoundException(Problem problem) {
        super(problem);
    }
}
