package io.github.leasehold.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.StaleTokenException;
import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The gate on threads that a program interrupts. */
class GateTest {
    private static final TokenCheck CHECK = TokenCheck.of("00c0ffee00c0ffee", "jobs/settle", 0);

    @TempDir
    private Path directory;

    @Test
    void anInterruptOfTheRequestsThreadDoesNotBreakTheMark() throws Exception {
        Path mark = directory.resolve("mark");
        MarkFile.arm(mark, CHECK);
        Gate gate = new Gate(MarkFile.open(mark, CHECK), Duration.ofSeconds(30));
        for (int number = 1; number <= 3; number++) {
            Thread.currentThread().interrupt();
            gate.enter(number, Duration.ZERO).leave(true);
            assertTrue(Thread.interrupted(), "the interrupt stays set");
        }
        assertThrows(StaleTokenException.class, () -> gate.enter(2, Duration.ZERO));
        gate.close();
        assertEquals(3, MarkFile.open(mark, CHECK).mark());
    }
}
