package io.github.leasehold;

import java.time.Duration;

/** Options of a message. Immutable; each method returns a copy. */
public final class SendOptions {
    private static final SendOptions DEFAULTS = new SendOptions(null, null);

    private final Duration delay;
    private final Integer maxAttempts;

    private SendOptions(Duration delay, Integer maxAttempts) {
        this.delay = delay;
        this.maxAttempts = maxAttempts;
    }

    /**
     * No delay, five attempts.
     *
     * @return the defaults
     */
    public static SendOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Delays the message.
     *
     * @param delay time before it can be received
     * @return a copy
     */
    public SendOptions delay(Duration delay) {
        return new SendOptions(delay, maxAttempts);
    }

    /**
     * Limits the deliveries of the message; then it is a dead letter.
     *
     * @param attempts number of deliveries; 5 by default
     * @return a copy
     */
    public SendOptions maxAttempts(int attempts) {
        return new SendOptions(delay, attempts);
    }

    String body(byte[] message) {
        return Body.object("body_base64", Body.bytes(message), "delay", Body.duration(delay), "max_attempts", maxAttempts);
    }
}
