package io.github.leasehold;

/**
 * How and why a lease ended.
 *
 * @param state {@code expired}, {@code released} or {@code revoked}; {@code not_current} if another holder has the lease, or its end is no
 *     longer known. A newer server may send other words
 * @param reason the reason, such as {@code ttl}, {@code session}, {@code operator} or {@code handed_off}
 */
public record Loss(String state, String reason) {
    static final Loss RELEASED = new Loss("released", "released");
    static final Loss SESSION_ENDED = new Loss("expired", "session");

    /**
     * Whether the program may acquire the lease again by itself. After a revocation an operator decides first.
     *
     * @return true after an expiry
     */
    public boolean mayAcquireAgain() {
        return state.equals("expired");
    }

    LeaseLostException toException(String resource) {
        String detail = "the lease on " + resource + " has ended: " + state + " (" + reason + ")";
        String next = mayAcquireAgain() ? "Stop writing; you may acquire again." : "Stop writing; do not acquire again without the operator.";
        String code = state.equals("not_current") ? "NOT_CURRENT" : "LEASE_LOST";
        return new LeaseLostException(new Problem(code, detail, next, java.util.Map.of("state", state, "reason", reason), null));
    }
}
