package io.github.leasehold;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;

/**
 * What a lease reports to the program. The threads that renew and watch deadlines complete these futures themselves; everything that the
 * program attached runs on threads for callbacks.
 */
final class LeaseEvents {
    private final Callbacks callbacks;
    private final CompletableFuture<Loss> lost = new CompletableFuture<>();
    private final CompletableFuture<LeaseState> stopped = new CompletableFuture<>();
    private final CompletableFuture<Duration> draining = new CompletableFuture<>();
    private final CompletableFuture<Void> claimable = new CompletableFuture<>();
    private final List<Consumer<LeaseState>> stateListeners = new CopyOnWriteArrayList<>();

    LeaseEvents(Callbacks callbacks) {
        this.callbacks = callbacks;
    }

    CompletableFuture<Loss> lost() {
        return copy(lost);
    }

    CompletableFuture<LeaseState> stopped() {
        return copy(stopped);
    }

    CompletableFuture<Duration> draining() {
        return copy(draining);
    }

    CompletableFuture<Void> claimable() {
        return copy(claimable);
    }

    boolean isClaimable() {
        return claimable.isDone();
    }

    void onLost(Consumer<Loss> action) {
        lost.thenAccept(loss -> callbacks.execute(() -> action.accept(loss)));
    }

    void onDraining(Consumer<Duration> action) {
        draining.thenAccept(left -> callbacks.execute(() -> action.accept(left)));
    }

    void onStateChange(Consumer<LeaseState> action) {
        stateListeners.add(action);
    }

    /** Runs the action once when work must stop. Cancel the result to withdraw it. */
    CompletableFuture<Void> whenStopped(Runnable action) {
        return stopped.thenRunAsync(action, callbacks);
    }

    void reportState(LeaseState state) {
        if (state != LeaseState.HELD) {
            stopped.complete(state);
        }
        for (Consumer<LeaseState> listener : stateListeners) {
            callbacks.execute(() -> listener.accept(state));
        }
    }

    void reportLoss(Loss end) {
        lost.complete(end);
        reportState(LeaseState.LOST);
    }

    void reportDrain(Duration left) {
        draining.complete(left);
    }

    void reportClaimable() {
        claimable.complete(null);
    }

    /** A future for the program: completing or canceling it changes nothing here, and its stages never run on a thread that renews. */
    private <T> CompletableFuture<T> copy(CompletableFuture<T> source) {
        return source.isDone() ? source.copy() : source.thenApplyAsync(value -> value, callbacks);
    }
}
