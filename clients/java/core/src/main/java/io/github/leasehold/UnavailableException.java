package io.github.leasehold;

import java.time.Duration;
import java.util.Optional;

/**
 * No server decided, and nothing happened.
 */
public final class UnavailableException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    UnavailableException(Problem problem) {
        super(problem);
    }

    @Override
    public boolean isRetryable() {
        return true;
    }

    /**
     * When to retry.
     *
     * @return the time that the server asked for; empty if it did not say
     */
    public Optional<Duration> retryAfter() {
        return millis("retry_after_ms");
    }
}
