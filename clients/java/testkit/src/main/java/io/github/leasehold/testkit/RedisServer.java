package io.github.leasehold.testkit;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/** A real Redis server on a free port, with a durable append-only file. */
public final class RedisServer implements AutoCloseable {
    private final Path directory;
    private final TestProcess process;
    private final int port;

    private RedisServer(Path directory, TestProcess process, int port) {
        this.directory = directory;
        this.process = process;
        this.port = port;
    }

    /** Starts a server. */
    public static RedisServer start() {
        Path directory = TestProcess.temporaryDirectory("leasehold-java-redis");
        int port = PostgresServer.freePort();
        TestProcess process = TestProcess.start(directory, Map.of(), List.of("redis-server", "--port", Integer.toString(port), "--bind", "127.0.0.1",
                "--dir", directory.toString(), "--appendonly", "yes", "--appendfsync", "always", "--save", ""));
        process.waitFor(line -> line.contains("Ready to accept connections") ? line : null);
        return new RedisServer(directory, process, port);
    }

    /** Address for Lettuce. */
    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    @Override
    public void close() {
        process.close();
        TestProcess.deleteDirectory(directory);
    }
}
