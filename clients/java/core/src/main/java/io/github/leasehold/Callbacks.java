package io.github.leasehold;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;

/**
 * Runs code of the program. Each callback may block: it has a daemon platform thread, so neither another callback nor a busy scheduler of
 * virtual threads delays it. It never throws, because the threads that renew call it.
 */
final class Callbacks implements Executor {
    private final ExecutorService threads = ClientThreads.platform("leasehold-callback");
    private final Queue<Runnable> postponed = new ConcurrentLinkedQueue<>();

    @Override
    public void execute(Runnable callback) {
        Runnable guarded = () -> {
            try {
                callback.run();
            } catch (Throwable failed) {
                System.getLogger("io.github.leasehold").log(System.Logger.Level.ERROR, "a callback failed", failed);
            }
        };
        try {
            threads.execute(guarded);
        } catch (OutOfMemoryError noThread) {
            postponed.add(guarded);
        }
    }

    /** Runs what no thread could be created for. Called again and again by the thread that watches deadlines. */
    void retryPostponed() {
        for (Runnable callback = postponed.poll(); callback != null; callback = postponed.poll()) {
            try {
                threads.execute(callback);
            } catch (OutOfMemoryError noThread) {
                postponed.add(callback);
                return;
            }
        }
    }
}
