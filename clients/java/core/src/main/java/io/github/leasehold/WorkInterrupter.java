package io.github.leasehold;

/** Interrupts the thread of some work, but never after the work has returned. */
final class WorkInterrupter {
    private final Thread thread;
    private boolean finished;
    private boolean interrupted;

    WorkInterrupter(Thread thread) {
        this.thread = thread;
    }

    synchronized void interrupt() {
        if (!finished) {
            interrupted = true;
            thread.interrupt();
        }
    }

    /** The work has returned. Returns whether it was interrupted; the first call clears that interrupt. */
    synchronized boolean finish() {
        if (interrupted && !finished) {
            Thread.interrupted();
        }
        finished = true;
        return interrupted;
    }
}
