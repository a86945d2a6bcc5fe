package io.github.leasehold.internal.http;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import javax.net.ssl.SSLContext;

/**
 * Kept connections to the servers. A connection serves one request at a time, and no lock is held while it does.
 */
public final class ConnectionPool implements AutoCloseable {
    /** A server keeps an idle connection for at least a minute. */
    private static final long MAX_IDLE_NANOS = TimeUnit.SECONDS.toNanos(45);
    private static final int MAX_IDLE_PER_SERVER = 16;
    /** A connection that was idle for longer is checked before it is used. The check takes a millisecond. */
    private static final long TRUSTED_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    private record Idle(HttpExchange exchange, long since) {}

    private final SSLContext tls;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<ServerAddress, Deque<Idle>> idle = new HashMap<>();
    /** Requests in progress, and when each was sent. */
    private final Map<ServerAddress, Map<HttpExchange, Long>> busy = new HashMap<>();
    private boolean closed;

    /** A pool. With a context, addresses use TLS, except Unix sockets. */
    public ConnectionPool(SSLContext tls) {
        this.tls = tls;
    }

    /**
     * Sends a request and waits for its response. A kept connection that the server closed meanwhile is replaced once.
     *
     * @throws NotSentException if the server cannot have received the request
     */
    public ApiResponse send(ServerAddress address, ApiRequest request, long timeoutMillis, Cancellation cancellation) throws IOException {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        HttpExchange kept = takeIdle(address);
        if (kept != null) {
            try {
                return sendOn(kept, address, request, until, cancellation);
            } catch (java.net.SocketTimeoutException | java.net.ProtocolException final_) {
                throw final_;
            } catch (IOException broken) {
                if (kept.anyByteRead() || cancellation.isCanceled() || isClosed()) {
                    throw broken;
                }
                return sendAgain(broken, address, request, until, cancellation);
            }
        }
        return sendOn(open(address, until), address, request, until, cancellation);
    }

    /** The broken connection may have carried the request, so that a failure to open another one does not prove that nothing happened. */
    private ApiResponse sendAgain(IOException broken, ServerAddress address, ApiRequest request, long until, Cancellation cancellation)
            throws IOException {
        HttpExchange opened;
        try {
            opened = open(address, until);
        } catch (NotSentException unreachable) {
            broken.addSuppressed(unreachable);
            throw broken;
        }
        return sendOn(opened, address, request, until, cancellation);
    }

    /** Opens a stream of lines. The caller closes it. */
    public LineStream openStream(ServerAddress address, ApiRequest request, long timeoutMillis) throws IOException {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        HttpExchange exchange = open(address, until);
        try {
            ApiResponse response = exchange.send(address, request.streaming(), left(until));
            return new LineStream(exchange, response);
        } catch (IOException | RuntimeException failed) {
            exchange.close();
            throw failed;
        }
    }

    /** Ends all requests that wait for this server. Their callers try another one. */
    public void abort(ServerAddress address) {
        List<HttpExchange> all;
        lock.lock();
        try {
            all = List.copyOf(busy.getOrDefault(address, Map.of()).keySet());
        } finally {
            lock.unlock();
        }
        all.forEach(HttpExchange::close);
    }

    /** Ends all requests that wait for other servers than this one, and were sent before a time of {@link System#nanoTime}. */
    public void abortOthers(ServerAddress current, long sentBefore) {
        List<HttpExchange> others = new ArrayList<>();
        lock.lock();
        try {
            busy.forEach((address, exchanges) -> {
                if (!address.equals(current)) {
                    exchanges.forEach((exchange, sent) -> {
                        if (sent - sentBefore < 0) {
                            others.add(exchange);
                        }
                    });
                }
            });
        } finally {
            lock.unlock();
        }
        others.forEach(HttpExchange::close);
    }

    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            idle.values().forEach(deque -> deque.forEach(kept -> kept.exchange().close()));
            idle.clear();
            busy.values().forEach(exchanges -> exchanges.keySet().forEach(HttpExchange::close));
        } finally {
            lock.unlock();
        }
    }

    private boolean isClosed() {
        lock.lock();
        try {
            return closed;
        } finally {
            lock.unlock();
        }
    }

    private ApiResponse sendOn(HttpExchange exchange, ServerAddress address, ApiRequest request, long until, Cancellation cancellation)
            throws IOException {
        Runnable close = exchange::close;
        cancellation.onCancel(close);
        track(address, exchange);
        boolean reuse = false;
        try {
            ApiResponse response = exchange.send(address, request, left(until));
            reuse = exchange.keepsAlive();
            return response;
        } finally {
            cancellation.remove(close);
            untrack(address, exchange);
            if (reuse && !cancellation.isCanceled()) {
                keep(address, exchange);
            } else {
                exchange.close();
            }
        }
    }

    private HttpExchange open(ServerAddress address, long until) throws NotSentException {
        try {
            if (address.isUnixSocket()) {
                return new HttpExchange(UnixConnection.open(address.socket()));
            }
            if (address.requiresTls() && tls == null) {
                throw new IOException(address + " needs TLS; set the CA certificates that verify the server");
            }
            return new HttpExchange(TcpConnection.open(address, tls, left(until)));
        } catch (IOException failed) {
            throw new NotSentException(failed);
        }
    }

    private static long left(long until) {
        return Math.max(1, TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime()));
    }

    private HttpExchange takeIdle(ServerAddress address) {
        while (true) {
            Idle newest = pollIdle(address);
            if (newest == null) {
                return null;
            }
            long idleNanos = System.nanoTime() - newest.since();
            if (idleNanos < TRUSTED_NANOS || idleNanos < MAX_IDLE_NANOS && newest.exchange().isIdleAndOpen()) {
                return newest.exchange();
            }
            newest.exchange().close();
        }
    }

    private Idle pollIdle(ServerAddress address) {
        lock.lock();
        try {
            Deque<Idle> deque = idle.get(address);
            return deque == null ? null : deque.pollLast();
        } finally {
            lock.unlock();
        }
    }

    private void keep(ServerAddress address, HttpExchange exchange) {
        lock.lock();
        try {
            Deque<Idle> deque = idle.computeIfAbsent(address, any -> new ArrayDeque<>());
            if (closed || deque.size() >= MAX_IDLE_PER_SERVER) {
                exchange.close();
            } else {
                deque.addLast(new Idle(exchange, System.nanoTime()));
            }
        } finally {
            lock.unlock();
        }
    }

    private void track(ServerAddress address, HttpExchange exchange) throws IOException {
        lock.lock();
        try {
            if (closed) {
                exchange.close();
                throw new IOException("the client is closed");
            }
            busy.computeIfAbsent(address, any -> new HashMap<>()).put(exchange, System.nanoTime());
        } finally {
            lock.unlock();
        }
    }

    private void untrack(ServerAddress address, HttpExchange exchange) {
        lock.lock();
        try {
            busy.getOrDefault(address, new HashMap<>()).remove(exchange);
        } finally {
            lock.unlock();
        }
    }
}
