package io.github.leasehold.testkit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Stream;

/** A child process that ends with the test, even if the test is killed ({@code setpriv} ties it to its parent). */
public final class TestProcess implements AutoCloseable {
    /** Generous upper bound of every wait; a test never depends on how long something takes. */
    public static final long TIMEOUT_MILLIS = 60_000;

    private final Process process;
    private final List<String> log = new ArrayList<>();

    private TestProcess(Process process) {
        this.process = process;
    }

    /** Starts a program with its output on standard error and standard output in one log. */
    public static TestProcess start(Path directory, Map<String, String> environment, List<String> command) {
        List<String> tied = new ArrayList<>(List.of("setpriv", "--pdeathsig", "KILL", "--"));
        tied.addAll(command);
        ProcessBuilder builder = new ProcessBuilder(tied).directory(directory.toFile()).redirectErrorStream(true);
        builder.environment().putAll(environment);
        try {
            TestProcess started = new TestProcess(builder.start());
            Thread reader = new Thread(started::readLog, "log of " + command.get(0));
            reader.setDaemon(true);
            reader.start();
            return started;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private void readLog() {
        try (BufferedReader reader = process.inputReader()) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                synchronized (log) {
                    log.add(line);
                    log.notifyAll();
                }
            }
        } catch (IOException ended) {
            // The process has ended.
        }
        synchronized (log) {
            log.notifyAll();
        }
    }

    /** Waits for a line of the log from which {@code select} returns something. */
    public <T> T waitFor(Function<String, T> select) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TIMEOUT_MILLIS);
        int next = 0;
        synchronized (log) {
            while (true) {
                for (; next < log.size(); next++) {
                    T found = select.apply(log.get(next));
                    if (found != null) {
                        return found;
                    }
                }
                if (!process.isAlive() && next == log.size() || System.nanoTime() > until) {
                    throw new IllegalStateException("the process is not ready: " + log);
                }
                try {
                    log.wait(100);
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException(interrupted);
                }
            }
        }
    }

    /** All lines so far. */
    public List<String> log() {
        synchronized (log) {
            return List.copyOf(log);
        }
    }

    /** Process id. */
    public long pid() {
        return process.pid();
    }

    /** Whether the process runs. */
    public boolean isAlive() {
        return process.isAlive();
    }

    /** Sends a signal by its name, such as STOP. */
    public void signal(String name) {
        run("kill", "-" + name, Long.toString(process.pid()));
    }

    /** Waits for the end, and returns the exit code. */
    public int waitForExit() {
        try {
            if (!process.waitFor(TIMEOUT_MILLIS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("the process does not end: " + log());
            }
            return process.exitValue();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    @Override
    public void close() {
        process.destroyForcibly();
        waitForExit();
    }

    /** Runs a program to its end, and returns its output. Fails with it if the program does. */
    public static String run(String... command) {
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            String output = new String(process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
            if (process.waitFor() != 0) {
                throw new IllegalStateException(String.join(" ", command) + ": " + output);
            }
            return output;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    static Path temporaryDirectory(String name) {
        try {
            Path memory = Path.of("/dev/shm");
            return Files.isWritable(memory) ? Files.createTempDirectory(memory, name) : Files.createTempDirectory(name);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    static void deleteDirectory(Path directory) {
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException | UncheckedIOException gone) {
            // A temporary directory of the system.
        }
    }
}
