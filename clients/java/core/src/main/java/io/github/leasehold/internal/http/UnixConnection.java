package io.github.leasehold.internal.http;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** A connection to a Unix socket. Such channels have no read timeout in Java, so a selector waits for them. */
final class UnixConnection implements Connection {
    private final SocketChannel channel;
    private final Selector selector;
    private final SelectionKey key;

    private UnixConnection(SocketChannel channel, Selector selector) throws IOException {
        this.channel = channel;
        this.selector = selector;
        this.key = channel.register(selector, 0);
    }

    static UnixConnection open(Path path) throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            channel.connect(UnixDomainSocketAddress.of(path));
            channel.configureBlocking(false);
            return new UnixConnection(channel, Selector.open());
        } catch (IOException | RuntimeException failed) {
            channel.close();
            throw failed;
        }
    }

    @Override
    public int read(byte[] buffer, int offset, int length, long timeoutMillis) throws IOException {
        ByteBuffer target = ByteBuffer.wrap(buffer, offset, length);
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        while (true) {
            int count = channel.read(target);
            if (count != 0) {
                return count;
            }
            awaitReady(SelectionKey.OP_READ, until);
        }
    }

    @Override
    public void write(byte[] bytes, long timeoutMillis) throws IOException {
        ByteBuffer source = ByteBuffer.wrap(bytes);
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        while (source.hasRemaining()) {
            if (channel.write(source) == 0) {
                awaitReady(SelectionKey.OP_WRITE, until);
            }
        }
    }

    @Override
    public boolean isIdleAndOpen() {
        try {
            return channel.read(ByteBuffer.allocate(1)) == 0;
        } catch (IOException broken) {
            return false;
        }
    }

    private void awaitReady(int operation, long until) throws IOException {
        long millis = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
        if (millis <= 0) {
            throw new SocketTimeoutException("no reply in time");
        }
        try {
            key.interestOps(operation);
            selector.select(millis);
            selector.selectedKeys().clear();
        } catch (ClosedSelectorException | java.nio.channels.CancelledKeyException closed) {
            throw new IOException("the connection was closed", closed);
        }
        if (Thread.currentThread().isInterrupted()) {
            throw new IOException("interrupted");
        }
    }

    @Override
    public void close() {
        try {
            selector.close();
            channel.close();
        } catch (IOException alreadyBroken) {
            // There is nothing left to close.
        }
    }
}
