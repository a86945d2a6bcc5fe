package io.github.leasehold.examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.testkit.LeaseholdServer;
import io.github.leasehold.testkit.PostgresServer;
import io.github.leasehold.testkit.TestProcess;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The examples run as processes of their own, and a paused worker is refused by PostgreSQL. */
class ExamplesTest {
    private static final String TTL_MILLIS = "3000";
    private static LeaseholdServer server;

    @BeforeAll
    static void startServer() {
        server = LeaseholdServer.start();
    }

    @AfterAll
    static void stopServer() {
        server.close();
    }

    private static TestProcess start(Class<?> example, String... arguments) {
        List<String> command = new ArrayList<>(
                List.of(ProcessHandle.current().info().command().orElse("java"), "-cp", System.getProperty("java.class.path"), example.getName()));
        command.addAll(List.of(arguments));
        return TestProcess.start(Path.of("."), Map.of("LEASEHOLD_ADDR", server.address()), command);
    }

    private static List<String> run(Class<?> example) {
        try (TestProcess process = start(example)) {
            assertEquals(0, process.waitForExit(), () -> process.log().toString());
            return process.log();
        }
    }

    @Test
    void theLockExampleRuns() {
        assertTrue(run(LockExample.class).get(0).startsWith("working with token lh1-"));
    }

    @Test
    void theLeaderExampleRuns() {
        assertEquals("resigned", run(LeaderExample.class).get(1));
    }

    @Test
    void theQueueExampleRuns() {
        assertEquals(List.of("sending mail 1", "sending mail 2", "sending mail 3"), run(QueueExample.class));
    }

    @Test
    void aWorkerThatIsStoppedPastItsTtlIsRefusedByPostgres() throws Exception {
        try (PostgresServer postgres = PostgresServer.start()) {
            postgres.protect("jobs/settle", server.cluster());
            String url = postgres.url("app");
            try (TestProcess first = start(FencedWriteExample.class, "worker-1", url, TTL_MILLIS)) {
                first.waitFor(line -> line.equals("claimed") ? line : null);
                while (postgres.psql("SELECT count(*) FROM paid").strip().equals("0")) {
                    Thread.sleep(10);
                }
                first.signal("STOP");
                try (TestProcess second = start(FencedWriteExample.class, "worker-2", url, TTL_MILLIS)) {
                    second.waitFor(line -> line.equals("claimed") ? line : null);
                    while (!writers(postgres).equals("2")) {
                        Thread.sleep(10);
                    }
                    first.signal("CONT");
                    assertEquals(3, first.waitForExit(), () -> first.log().toString());
                    assertTrue(first.log().stream().anyMatch(line -> line.startsWith("STALE_TOKEN: ")), () -> first.log().toString());
                    assertTrue(second.isAlive(), "the successor continues");
                    assertEquals("t", postgres.psql("SELECT bool_and(cents >= before) FROM (SELECT cents, lag(cents, 1, 0) OVER (ORDER BY id) AS before FROM paid) AS p").strip(),
                            "no write of the first worker follows one of the second");
                }
            }
        }
    }

    private static String writers(PostgresServer postgres) {
        return postgres.psql("SELECT count(DISTINCT cents) FROM paid").strip();
    }

    @Test
    void theFencedWorkerHasAtMost25LinesOfUserCode() throws Exception {
        Path source = LeaseholdServer.repository().resolve("clients/java/examples/src/main/java/io/github/leasehold/examples/FencedWriteExample.java");
        long lines = Files.readAllLines(source).stream().map(String::strip)
                .filter(line -> !line.isEmpty() && !line.startsWith("import ") && !line.startsWith("package ") && !line.startsWith("/**")).count();
        assertTrue(lines <= 25, lines + " lines");
        assertFalse(lines < 10);
    }
}
