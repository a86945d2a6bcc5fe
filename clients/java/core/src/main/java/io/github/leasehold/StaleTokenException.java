package io.github.leasehold;

import java.util.Optional;

/**
 * A fence has seen a newer token: the lease of this token has ended, and nothing was written. Stop writing.
 */
public final class StaleTokenException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    StaleTokenException(Problem problem) {
        super(problem);
    }

    /**
     * The number that was presented.
     *
     * @return the token number
     */
    public Optional<String> presented() {
        return field("presented");
    }

    /**
     * The high-water mark of the fence.
     *
     * @return the token number
     */
    public Optional<String> mark() {
        return field("mark");
    }
}
