package io.github.leasehold.internal.http;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** A TCP connection, with TLS if there is a context. */
final class TcpConnection implements Connection {
    /** So much always fits into the send buffer of a connection whose last response was read. */
    private static final int NEVER_BLOCKS = 4 * 1024;
    /** Closes sockets whose write is not finished in time: Java has no timeout for writes. */
    private static final ScheduledThreadPoolExecutor WRITE_TIMEOUTS = writeTimeouts();

    private final Socket plain;
    private final Socket socket;

    private TcpConnection(Socket plain, Socket socket) {
        this.plain = plain;
        this.socket = socket;
    }

    private static ScheduledThreadPoolExecutor writeTimeouts() {
        ScheduledThreadPoolExecutor timeouts = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(null, task, "leasehold-write-timeouts", 0, false);
            thread.setDaemon(true);
            return thread;
        });
        timeouts.setRemoveOnCancelPolicy(true);
        timeouts.setKeepAliveTime(10, TimeUnit.SECONDS);
        timeouts.allowCoreThreadTimeOut(true);
        return timeouts;
    }

    static TcpConnection open(ServerAddress address, SSLContext tls, long timeoutMillis) throws IOException {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        Socket plain = new Socket();
        try {
            InetSocketAddress target = new InetSocketAddress(address.host(), address.port());
            if (target.isUnresolved()) {
                throw new UnknownHostException(address.host());
            }
            plain.connect(target, millis(timeoutMillis));
            plain.setTcpNoDelay(true);
            return new TcpConnection(plain, tls == null ? plain : encrypt(plain, address, tls, until));
        } catch (IOException | RuntimeException failed) {
            plain.close();
            throw failed;
        }
    }

    private static SSLSocket encrypt(Socket plain, ServerAddress address, SSLContext tls, long until) throws IOException {
        SSLSocket socket = (SSLSocket) tls.getSocketFactory().createSocket(plain, address.host(), address.port(), true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        parameters.setApplicationProtocols(new String[] {"http/1.1"});
        parameters.setProtocols(new String[] {"TLSv1.3"});
        socket.setSSLParameters(parameters);
        socket.setSoTimeout(millis(TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime())));
        socket.startHandshake();
        return socket;
    }

    @Override
    public int read(byte[] buffer, int offset, int length, long timeoutMillis) throws IOException {
        socket.setSoTimeout(millis(timeoutMillis));
        return socket.getInputStream().read(buffer, offset, length);
    }

    @Override
    public void write(byte[] bytes, long timeoutMillis) throws IOException {
        if (bytes.length <= NEVER_BLOCKS) {
            socket.getOutputStream().write(bytes);
            return;
        }
        Future<?> timeout = WRITE_TIMEOUTS.schedule(this::close, timeoutMillis, TimeUnit.MILLISECONDS);
        try {
            socket.getOutputStream().write(bytes);
        } catch (IOException failed) {
            if (timeout.isDone()) {
                throw (SocketTimeoutException) new SocketTimeoutException("the server did not read the request in time").initCause(failed);
            }
            throw failed;
        } finally {
            timeout.cancel(false);
        }
    }

    @Override
    public boolean isIdleAndOpen() {
        try {
            socket.setSoTimeout(1);
            socket.getInputStream().read();
            return false;
        } catch (SocketTimeoutException nothingArrived) {
            return true;
        } catch (IOException broken) {
            return false;
        }
    }

    /** Without the farewell of TLS, which could block behind a write. */
    @Override
    public void close() {
        try {
            plain.close();
        } catch (IOException alreadyBroken) {
            // There is nothing left to close.
        }
    }

    /** A timeout for a socket, where 0 would mean none. */
    private static int millis(long timeout) {
        return (int) Math.max(1, Math.min(timeout, Integer.MAX_VALUE));
    }
}
