package io.github.leasehold;

import java.time.Duration;

/** A request whose reply was lost, and which can be repeated under its key. */
interface PendingOutcome<T> {
    T resolve(Duration timeout) throws InterruptedException;
}
