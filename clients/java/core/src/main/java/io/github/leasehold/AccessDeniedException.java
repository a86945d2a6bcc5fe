package io.github.leasehold;

/**
 * The caller is not authenticated, lacks a permission, or needs the approval of a second identity.
 */
public final class AccessDeniedException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    AccessDeniedException(Problem problem) {
        super(problem);
    }
}
