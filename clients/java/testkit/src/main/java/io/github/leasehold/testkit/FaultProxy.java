package io.github.leasehold.testkit;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A TCP proxy in front of a server that can lose replies, delay them, or cut all connections. */
public final class FaultProxy implements AutoCloseable {
    private final ServerSocket listener;
    private final String target;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private volatile boolean losesReplies;
    private volatile boolean refuses;
    private volatile long delayMillis;

    private FaultProxy(ServerSocket listener, String target) {
        this.listener = listener;
        this.target = target;
    }

    /** Starts a proxy for this server. */
    public static FaultProxy start(String target) {
        try {
            FaultProxy proxy = new FaultProxy(new ServerSocket(0, 64, InetAddress.getLoopbackAddress()), target);
            daemon(proxy::accept);
            return proxy;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** Address of the proxy. */
    public String address() {
        return "127.0.0.1:" + listener.getLocalPort();
    }

    /** From now on requests pass, and the connection is cut instead of the reply. */
    public void loseReplies(boolean lose) {
        losesReplies = lose;
    }

    /** From now on replies wait for this long. */
    public void delayReplies(long millis) {
        delayMillis = millis;
    }

    /** Cuts all connections, and refuses others until it is called with false. */
    public void cut(boolean cut) {
        refuses = cut;
        if (cut) {
            open.forEach(FaultProxy::closeQuietly);
        }
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                Socket client = listener.accept();
                if (refuses) {
                    client.close();
                    continue;
                }
                int colon = target.lastIndexOf(':');
                Socket server = new Socket(target.substring(0, colon), Integer.parseInt(target.substring(colon + 1)));
                open.add(client);
                open.add(server);
                daemon(() -> copy(client, server, false));
                daemon(() -> copy(server, client, true));
            } catch (IOException closed) {
                // The listener is closed, or the server does not run.
            }
        }
    }

    private void copy(Socket from, Socket to, boolean isReply) {
        byte[] buffer = new byte[8192];
        try (InputStream in = from.getInputStream(); OutputStream out = to.getOutputStream()) {
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                if (isReply && losesReplies) {
                    break;
                }
                if (isReply && delayMillis > 0) {
                    Thread.sleep(delayMillis);
                }
                out.write(buffer, 0, count);
                out.flush();
            }
        } catch (IOException | InterruptedException ended) {
            // One side has closed.
        } finally {
            closeQuietly(from);
            closeQuietly(to);
            open.remove(from);
            open.remove(to);
        }
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException alreadyClosed) {
            // Nothing is left to close.
        }
    }

    private static void daemon(Runnable task) {
        Thread thread = new Thread(task, "fault-proxy");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() {
        try {
            listener.close();
        } catch (IOException alreadyClosed) {
            // Nothing is left to close.
        }
        cut(true);
    }
}
