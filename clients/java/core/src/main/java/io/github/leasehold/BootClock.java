package io.github.leasehold;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;

/**
 * {@link System#nanoTime} plus the time that the machine was suspended. The kernel prints the boot clock, which includes suspend, in
 * {@code /proc/uptime} with a resolution of 10 ms; the difference between the two clocks only grows while the machine is suspended. The file
 * stays open, so that a process without free descriptors still has this clock.
 */
final class BootClock implements HolderClock {
    static final BootClock INSTANCE = new BootClock();

    /** Smaller differences are caused by the resolution of the file. */
    private static final long TOLERANCE = 30_000_000;

    private final RandomAccessFile file;
    private final byte[] buffer = new byte[64];
    private final boolean hasUptime;
    private final long difference;
    private final AtomicLong suspended = new AtomicLong();

    private BootClock() {
        file = open();
        long first = uptime();
        hasUptime = first >= 0;
        difference = first - System.nanoTime();
    }

    @Override
    public long nanos() {
        if (!hasUptime) {
            return System.nanoTime();
        }
        long uptime = uptime();
        long now = System.nanoTime();
        // Being paused between the two reads only makes the difference smaller, and the next read larger again.
        long suspend = uptime - now - difference;
        if (uptime >= 0 && suspend > suspended.get() + TOLERANCE) {
            suspended.accumulateAndGet(suspend, Math::max);
        }
        return now + suspended.get();
    }

    private static RandomAccessFile open() {
        try {
            return new RandomAccessFile("/proc/uptime", "r");
        } catch (IOException absent) {
            return null;
        }
    }

    /** The boot clock in nanoseconds, or -1. The kernel answers from memory, so the monitor is held for microseconds. */
    private synchronized long uptime() {
        if (file == null) {
            return -1;
        }
        try {
            file.seek(0);
            int count = file.read(buffer);
            return count <= 0 ? -1 : parse(new String(buffer, 0, count, StandardCharsets.US_ASCII));
        } catch (IOException unreadable) {
            return -1;
        }
    }

    /** Parses the first number of the file, which has two decimal places. */
    static long parse(String text) {
        int dot = text.indexOf('.');
        int space = text.indexOf(' ');
        if (dot <= 0 || space != dot + 3) {
            return -1;
        }
        try {
            return Long.parseLong(text.substring(0, dot)) * 1_000_000_000 + Long.parseLong(text.substring(dot + 1, space)) * 10_000_000;
        } catch (NumberFormatException another) {
            return -1;
        }
    }
}
