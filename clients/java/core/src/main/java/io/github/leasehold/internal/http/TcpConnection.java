package io.github.leasehold.internal.http;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnknownHostException;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** A TCP connection, with TLS if there is a context. */
final class TcpConnection implements Connection {
    private final Socket socket;

    private TcpConnection(Socket socket) {
        this.socket = socket;
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
            return new TcpConnection(tls == null ? plain : encrypt(plain, address, tls, until));
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
        // A request fits into the send buffer of a connection whose last response was read, so this does not block.
        socket.getOutputStream().write(bytes);
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException alreadyBroken) {
            // There is nothing left to close.
        }
    }

    /** A timeout for a socket, where 0 would mean none. */
    private static int millis(long timeout) {
        return (int) Math.max(1, Math.min(timeout, Integer.MAX_VALUE));
    }
}
