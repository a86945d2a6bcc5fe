package io.github.leasehold;

/** How much faster or slower than real time any clock may run: one percent. Both sides of a lease may be wrong by that. */
final class ClockDrift {
    private static final long NANOS_PER_MILLI = 1_000_000;

    private ClockDrift() {}

    /**
     * Nanoseconds on this clock that are never longer in real time than {@code millis} on the server's. The server counts whole
     * milliseconds, so an interval that begins within one ends up to a millisecond early.
     */
    static long shrink(long millis) {
        return Math.max(0, millis - 1) * NANOS_PER_MILLI / 100 * 98;
    }

    /** Nanoseconds to wait on this clock until {@code millis} have passed on any other clock. */
    static long stretch(long millis) {
        return (millis + 1) * NANOS_PER_MILLI / 99 * 101 + NANOS_PER_MILLI;
    }
}
