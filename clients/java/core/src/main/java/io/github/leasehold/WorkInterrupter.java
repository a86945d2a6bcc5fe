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

    /** The work has returned. Returns whether it was interrupted, and clears that interrupt. */
    synchronized boolean finish() {
        finished = true;
        if (interrupted) {
            Thread.interrupted();
        }
        return interrupted;
    }
}
