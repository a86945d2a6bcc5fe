package io.github.leasehold.servlet;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.zip.CRC32;

/**
 * The mark on disk: lines of a key and its value, followed by a checksum. It is replaced as a whole, and synced before and after, so that a
 * crash leaves either the old or the new mark. A lock file next to it keeps other processes away.
 */
final class MarkFile {
    private static final String VERSION = "leasehold-servlet-mark 1";

    private final Path path;
    private final TokenCheck fence;
    private final FileChannel lockFile;
    private final FileLock lock;
    private long mark;
    private boolean mayBeInFlight;
    private boolean usable = true;

    private MarkFile(Path path, TokenCheck fence, FileChannel lockFile, FileLock lock) {
        this.path = path;
        this.fence = fence;
        this.lockFile = lockFile;
        this.lock = lock;
    }

    static void arm(Path path, TokenCheck fence) throws IOException {
        if (Files.exists(path)) {
            open(path, fence).close(false);
        } else {
            replace(path, text(fence, 0, false));
        }
    }

    static MarkFile open(Path path, TokenCheck fence) throws IOException {
        Path beside = path.resolveSibling(path.getFileName() + ".lock");
        FileChannel channel = FileChannel.open(beside, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        try {
            FileLock lock = channel.tryLock();
            if (lock == null) {
                throw new OverlappingFileLockException();
            }
            MarkFile file = new MarkFile(path, fence, channel, lock);
            file.read();
            return file;
        } catch (OverlappingFileLockException used) {
            channel.close();
            throw new IOException("another fence uses " + path + "; one process at a time gates by a mark file", used);
        } catch (IOException failed) {
            channel.close();
            throw failed;
        }
    }

    private void read() throws IOException {
        if (!Files.exists(path)) {
            throw new IOException(path + " does not exist; if nothing was written under a lease yet, call FenceFilter.arm");
        }
        List<String> lines = Files.readAllLines(path);
        try {
            mark = Long.parseLong(lines.get(4).substring("mark ".length()));
            mayBeInFlight = lines.get(5).equals("in_flight yes");
        } catch (RuntimeException damaged) {
            throw damaged();
        }
        if (!(String.join("\n", lines) + "\n").equals(text(fence, mark, mayBeInFlight))) {
            throw damaged();
        }
    }

    private IOException damaged() {
        return new IOException(path + " is damaged, or is the mark of another resource or cluster; restore it, or arm another file");
    }

    long mark() {
        return mark;
    }

    /** Whether requests may have been in flight when the file was written last. */
    boolean mayBeInFlight() {
        return mayBeInFlight;
    }

    boolean isUsable() {
        return usable && lock.isValid();
    }

    void store(long number, boolean inFlight) throws IOException {
        try {
            replace(path, text(fence, number, inFlight));
        } catch (IOException failed) {
            // What is on disk now is unknown, so nothing may pass under either mark.
            usable = false;
            throw failed;
        }
        mark = number;
        mayBeInFlight = inFlight;
    }

    void close(boolean settled) {
        try {
            if (settled && mayBeInFlight && usable) {
                store(mark, false);
            }
            lockFile.close();
        } catch (IOException failed) {
            // The next process waits for the settle time.
        } finally {
            usable = false;
        }
    }

    private static String text(TokenCheck fence, long mark, boolean mayBeInFlight) {
        String body = VERSION + "\ncluster " + fence.cluster() + "\nslot " + fence.slot() + "\nname " + fence.name() + "\nmark " + mark + "\nin_flight "
                + (mayBeInFlight ? "yes" : "no") + "\n";
        CRC32 crc = new CRC32();
        crc.update(body.getBytes(StandardCharsets.UTF_8));
        return body + String.format("sum %08x\n", crc.getValue());
    }

    /** An interrupt of the request's thread closes the file that it writes. It is no failure of the disk, so the file is written again. */
    private static void replace(Path path, String text) throws IOException {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    replaceOnce(path, text);
                    return;
                } catch (ClosedByInterruptException again) {
                    interrupted |= Thread.interrupted();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static void replaceOnce(Path path, String text) throws IOException {
        Path fresh = path.resolveSibling(path.getFileName() + ".new");
        try (FileChannel channel = FileChannel.open(fresh, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.WRITE)) {
            ByteBuffer bytes = StandardCharsets.UTF_8.encode(text);
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
            channel.force(true);
        }
        Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        try (FileChannel directory = FileChannel.open(path.toAbsolutePath().getParent(), StandardOpenOption.READ)) {
            directory.force(true);
        }
    }
}
