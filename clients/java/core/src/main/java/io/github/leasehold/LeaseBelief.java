package io.github.leasehold;

/**
 * What a holder may believe about its lease, by its own clock: the deadlines, and whether the lease has ended. It does no I/O and runs no code
 * of the program; its monitor is held for a few instructions only.
 */
final class LeaseBelief {
    private static final long NEVER = Long.MAX_VALUE;

    private final Session session;
    private final boolean timedAlone;
    private final long ttlMillis;
    private final long silenceLimitMillis;

    private long ownDeadline = NEVER;
    private long ownSent = Long.MIN_VALUE;
    private long drainDeadline = NEVER;
    /** When a successor in an overlap handoff may claim; {@link #NEVER} once it may. */
    private long claimFrom = NEVER;
    private LeaseState reported = LeaseState.HELD;
    private Loss loss;

    /**
     * A belief in a new grant.
     *
     * @param timedAlone whether the lease has a deadline besides that of the session
     * @param silenceLimitMillis how long a holder may be without contact before a handoff that it does not know of can end its lease
     */
    LeaseBelief(Session session, boolean timedAlone, long ttlMillis, long silenceLimitMillis) {
        this.session = session;
        this.timedAlone = timedAlone;
        this.ttlMillis = ttlMillis;
        this.silenceLimitMillis = silenceLimitMillis;
    }

    /** A renewal of this lease by itself, which was requested at {@code sent}. An older one changes nothing. */
    synchronized void renewed(long sent, long remainingMillis) {
        if (timedAlone && sent >= ownSent) {
            ownSent = sent;
            ownDeadline = sent + ClockDrift.shrink(Math.min(remainingMillis, ttlMillis));
        }
    }

    /** The predecessor drains until this time. */
    synchronized void claimFrom(long time) {
        claimFrom = time;
    }

    /** Whether a successor may claim now. The first call that returns true ends the overlap; later ones return false. */
    synchronized boolean endOverlap(long now) {
        if (claimFrom == NEVER || now < claimFrom) {
            return false;
        }
        claimFrom = NEVER;
        return true;
    }

    /** The server no longer reports an overlap. Returns whether there was one. */
    synchronized boolean endOverlap() {
        return endOverlap(claimFrom);
    }

    /** Once draining under a token, never current again under it: the earliest deadline stays. Returns whether this is the first report. */
    synchronized boolean startDrain(long sent, long leftMillis) {
        boolean first = drainDeadline == NEVER;
        drainDeadline = Math.min(drainDeadline, sent + ClockDrift.shrink(leftMillis));
        return first;
    }

    /** Records the end. Returns whether it is the first report, which stays. */
    synchronized boolean lose(Loss end) {
        if (loss != null) {
            return false;
        }
        loss = end;
        reported = LeaseState.LOST;
        return true;
    }

    synchronized Loss loss() {
        return loss;
    }

    synchronized boolean isDraining() {
        return drainDeadline != NEVER;
    }

    synchronized long claimFrom() {
        return claimFrom;
    }

    synchronized long ownSent() {
        return ownSent;
    }

    synchronized long deadline() {
        long until = Math.min(ownDeadline, drainDeadline);
        if (!timedAlone || silenceLimitMillis < ttlMillis) {
            until = Math.min(until, session.lastSent() + ClockDrift.shrink(Math.max(silenceLimitMillis, 1)));
        }
        return Math.min(until, session.deadline());
    }

    /** Compares the clock with the deadlines. */
    synchronized Observation observe(long now) {
        if (loss != null) {
            return new Observation(LeaseState.LOST, false);
        }
        LeaseState state = now >= deadline() ? LeaseState.SUSPENDED : LeaseState.HELD;
        boolean isChange = state != reported;
        reported = state;
        return new Observation(state, isChange);
    }

    /**
     * The state at a time.
     *
     * @param isChange whether it differs from the one that was observed before, so that it is reported
     */
    record Observation(LeaseState state, boolean isChange) {}
}
