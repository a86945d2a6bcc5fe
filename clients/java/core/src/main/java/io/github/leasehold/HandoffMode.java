package io.github.leasehold;

/** How a lease passes from its holder to a successor. */
public enum HandoffMode {
    /** The successor is granted the lease after the predecessor has drained. */
    GAP("gap"),
    /** The successor is granted the lease immediately, and claims after the predecessor has drained. */
    OVERLAP("overlap");

    private final String word;

    HandoffMode(String word) {
        this.word = word;
    }

    String word() {
        return word;
    }
}
