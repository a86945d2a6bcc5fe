package io.github.leasehold;

import java.util.PriorityQueue;

/**
 * Actor names for leases. Every lease of a session is its own actor, so that the threads of one process exclude each other.
 * Ownership is never tied to a thread.
 */
final class ActorNames {
    /** A session has at most 4,096 actors; the rest is left to names that programs choose. Further leases share actors. */
    private static final int MAX = 4_096 - 256;

    private final PriorityQueue<Integer> free = new PriorityQueue<>();
    private final int[] uses = new int[MAX];
    private int next;
    private int shared;

    synchronized int take() {
        Integer reused = free.poll();
        int actor = reused != null ? reused : next < MAX ? next++ : (shared = (shared + 1) % MAX);
        uses[actor]++;
        return actor;
    }

    synchronized void share(int actor) {
        uses[actor]++;
    }

    synchronized void release(int actor) {
        if (--uses[actor] == 0) {
            free.add(actor);
        }
    }

    /** Name of an actor; the first one has the session's own. */
    static String name(int actor, String holder) {
        return actor == 0 ? "" : holder + "#" + actor;
    }
}
