package io.github.leasehold.testkit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** A real PostgreSQL server with the fence installed, run by a user other than root, because PostgreSQL refuses root. */
public final class PostgresServer implements AutoCloseable {
    /** Database superuser without a password. */
    public static final String USER = "postgres";

    private final Path directory;
    private final TestProcess process;
    private final int port;

    private PostgresServer(Path directory, TestProcess process, int port) {
        this.directory = directory;
        this.process = process;
        this.port = port;
    }

    /** Creates a database cluster in memory, starts the server and installs the fence. */
    public static PostgresServer start() {
        Path directory = TestProcess.temporaryDirectory("leasehold-java-pg");
        boolean root = "root".equals(System.getProperty("user.name"));
        if (root) {
            TestProcess.run("chown", "postgres:postgres", directory.toString());
        }
        Path bin = programs();
        String data = directory.resolve("data").toString();
        TestProcess.run(asServerUser(root, bin.resolve("initdb").toString(), "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C",
                "--username", USER, "-D", data).toArray(String[]::new));
        int port = freePort();
        List<String> command = asServerUser(root, bin.resolve("postgres").toString(), "-D", data, "-p", Integer.toString(port),
                "-c", "listen_addresses=127.0.0.1", "-k", directory.toString(), "-c", "synchronous_commit=on");
        TestProcess process = TestProcess.start(directory, Map.of(), command);
        process.waitFor(line -> line.contains("database system is ready to accept connections") ? line : null);
        PostgresServer server = new PostgresServer(directory, process, port);
        Path install = LeaseholdServer.repository().resolve("crates/fence/src/postgres/install.sql");
        TestProcess.run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", Integer.toString(port), "-U", USER, "-d", "postgres", "-f", install.toString());
        return server;
    }

    private static List<String> asServerUser(boolean root, String... command) {
        List<String> all = new ArrayList<>();
        if (root) {
            all.addAll(List.of("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "KILL", "--"));
        }
        all.addAll(List.of(command));
        return all;
    }

    private static Path programs() {
        try (Stream<Path> versions = Files.list(Path.of("/usr/lib/postgresql"))) {
            return versions.map(version -> version.resolve("bin")).filter(bin -> Files.isExecutable(bin.resolve("initdb"))).sorted()
                    .reduce((first, second) -> second).orElseThrow(() -> new IllegalStateException("install the Debian package postgresql"));
        } catch (IOException absent) {
            throw new IllegalStateException("install the Debian package postgresql", absent);
        }
    }

    static int freePort() {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** URL for JDBC, with the superuser. */
    public String url() {
        return "jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=" + USER;
    }

    /** URL for JDBC, with another user. */
    public String url(String user) {
        return "jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=" + user;
    }

    /** Runs SQL as the superuser. */
    public String psql(String sql) {
        return TestProcess.run("psql", "-qAt", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", Integer.toString(port), "-U", USER, "-d", "postgres", "-c", sql);
    }

    /** Arms the fence of a resource, and protects a new table {@code paid(id, cents)} with it. Role {@code app} may write to it. */
    public void protect(String resource, String cluster) {
        psql("CREATE TABLE paid (id bigint PRIMARY KEY, cents bigint NOT NULL)");
        psql("SELECT leasehold.arm('" + resource + "', '" + cluster + "')");
        psql("SELECT leasehold.protect('paid', '" + resource + "')");
        psql("CREATE ROLE app LOGIN");
        psql("GRANT USAGE ON SCHEMA leasehold TO app");
        psql("GRANT ALL ON paid TO app");
    }

    @Override
    public void close() {
        process.signal("QUIT");
        process.waitForExit();
        TestProcess.deleteDirectory(directory);
    }
}
