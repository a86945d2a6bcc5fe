package io.github.leasehold.internal.http;

import java.io.Closeable;
import java.io.IOException;

/** One byte stream to a server. {@link #close} may be called by any thread and ends a read or write that another thread is in. */
interface Connection extends Closeable {
    /** Reads at least one byte, or returns -1 at the end. Throws {@link java.net.SocketTimeoutException} after the timeout. */
    int read(byte[] buffer, int offset, int length, long timeoutMillis) throws IOException;

    /** Writes all bytes. */
    void write(byte[] bytes, long timeoutMillis) throws IOException;

    /** Whether the server has neither closed this idle connection nor sent anything that was not asked for. */
    boolean isIdleAndOpen();

    /** Never blocks. */
    @Override
    void close();
}
