package io.github.leasehold.internal.http;

import java.util.ArrayList;
import java.util.List;

/** A flag that one thread sets to end the request that another thread waits for. */
public final class Cancellation {
    private final List<Runnable> actions = new ArrayList<>();
    private boolean canceled;

    /** Cancels. Actions run once, in the calling thread. */
    public void cancel() {
        List<Runnable> run;
        synchronized (actions) {
            if (canceled) {
                return;
            }
            canceled = true;
            run = List.copyOf(actions);
        }
        run.forEach(Runnable::run);
    }

    /** Whether it was canceled. */
    public boolean isCanceled() {
        synchronized (actions) {
            return canceled;
        }
    }

    /** Runs the action when it is canceled; immediately if it was. */
    public void onCancel(Runnable action) {
        synchronized (actions) {
            if (!canceled) {
                actions.add(action);
                return;
            }
        }
        action.run();
    }

    /** Removes an action. */
    public void remove(Runnable action) {
        synchronized (actions) {
            actions.remove(action);
        }
    }
}
