package io.github.leasehold.testkit;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A real Leasehold server on a free port, from the binary in {@code LEASEHOLD_BIN}. */
public final class LeaseholdServer implements AutoCloseable {
    private static final Pattern READY = Pattern.compile("serving on ([^\\s,]+).* cluster ([0-9a-f]{16})");

    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final Path directory;
    private final List<String> flags;
    private TestProcess process;
    private String address;
    private String cluster;

    private LeaseholdServer(Path directory, List<String> flags) {
        this.directory = directory;
        this.flags = flags;
    }

    /** Starts a server that stores its journal in a temporary directory. */
    public static LeaseholdServer start(String... flags) {
        LeaseholdServer server = new LeaseholdServer(TestProcess.temporaryDirectory("leasehold-java"), List.of(flags));
        server.launch("127.0.0.1:0");
        return server;
    }

    /** The binary that {@code LEASEHOLD_BIN} names. */
    public static String binary() {
        String binary = System.getenv("LEASEHOLD_BIN");
        if (binary == null || !Files.isExecutable(Path.of(binary))) {
            throw new IllegalStateException("set LEASEHOLD_BIN to the path of the leasehold binary; build it with cargo build -p leasehold-cli");
        }
        return binary;
    }

    /** The root of the repository. */
    public static Path repository() {
        return Path.of(System.getProperty("leasehold.repository", "../../..")).toAbsolutePath().normalize();
    }

    private void launch(String listen) {
        List<String> command = new ArrayList<>(List.of(binary(), "serve", "--listen", listen, "--data", directory.resolve("data").toString()));
        command.addAll(flags);
        process = TestProcess.start(directory, Map.of("NO_COLOR", "1"), command);
        Matcher ready = process.waitFor(line -> {
            Matcher matcher = READY.matcher(line);
            return matcher.find() ? matcher : null;
        });
        address = ready.group(1);
        cluster = ready.group(2);
    }

    /** Host and port. */
    public String address() {
        return address;
    }

    /** Id of the cluster. */
    public String cluster() {
        return cluster;
    }

    /** Path of its Unix socket. */
    public Path socket() {
        return directory.resolve("data/leasehold.sock");
    }

    /** The process. */
    public TestProcess process() {
        return process;
    }

    /** Kills the server. */
    public void kill() {
        process.close();
    }

    /** Starts it again with the same journal and port. */
    public void restart() {
        launch(address);
    }

    /** Sends a request as an operator would, and returns status and body. Fails on a refusal. */
    public String post(String path, String body) {
        HttpResponse<String> response = send(HttpRequest.newBuilder(URI.create("http://" + address + path))
                .header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(body)).build());
        if (response.statusCode() >= 300) {
            throw new IllegalStateException(path + ": " + response.statusCode() + " " + response.body());
        }
        return response.body();
    }

    /** Reads a path. */
    public String get(String path) {
        return send(HttpRequest.newBuilder(URI.create("http://" + address + path)).build()).body();
    }

    private HttpResponse<String> send(HttpRequest request) {
        try {
            return http.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (IOException failed) {
            throw new java.io.UncheckedIOException(failed);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    @Override
    public void close() {
        process.close();
        TestProcess.deleteDirectory(directory);
    }
}
