package io.github.leasehold;

import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Waits for futures and throws what the operation threw, not its wrapper. */
final class Futures {
    private Futures() {}

    static <T> T await(CompletableFuture<T> future) throws InterruptedException {
        try {
            return future.get();
        } catch (ExecutionException failed) {
            throw unwrap(failed.getCause());
        }
    }

    /** Waits without regard to interrupts, for operations with a bound. The interrupt stays set. */
    static <T> T join(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException failed) {
            throw unwrap(failed.getCause());
        }
    }

    static RuntimeException unwrap(Throwable cause) {
        if (cause instanceof CompletionException nested && nested.getCause() != null) {
            return unwrap(nested.getCause());
        }
        if (cause instanceof CancellationException) {
            return new WaitCanceledException(Problem.of("CANCELLED", "the request was canceled", "Acquire again if you still need the lease."));
        }
        if (cause instanceof LeaseholdException known) {
            // The trace of the caller helps more than that of the thread that received the reply.
            known.addSuppressed(new CallSite());
            return known;
        }
        if (cause instanceof Error error) {
            throw error;
        }
        return cause instanceof RuntimeException runtime ? runtime : new IllegalStateException(cause);
    }

    /** Marks where a blocking call waited for the failed operation. */
    private static final class CallSite extends Exception {
        private static final long serialVersionUID = 1;

        CallSite() {
            super("called from here");
        }
    }
}
