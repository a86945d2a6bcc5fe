package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.internal.http.ServerAddress;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Addresses, settings of the environment, durations and the arithmetic of deadlines. */
class SettingsTest {
    @Test
    void addressesHaveFourForms() {
        assertEquals("127.0.0.1:7421", ServerAddress.parse("127.0.0.1").authority());
        assertEquals("[::1]:80", ServerAddress.parse("http://[::1]:80/").authority());
        assertEquals("[::1]:7421", ServerAddress.parse("[::1]").authority());
        assertTrue(ServerAddress.parse("https://a.example:1").requiresTls());
        assertEquals("/run/l.sock", ServerAddress.parse("unix:/run/l.sock").socket().toString());
        assertEquals(2, ServerAddress.parseAll("a:1, b:2").size());
        for (String invalid : List.of("", "a:", "a:x", "a:70000", "::1", "unix:", "a b:1", "user@a:1", "http://a/b")) {
            assertThrows(IllegalArgumentException.class, () -> ServerAddress.parseAll(invalid), invalid);
        }
    }

    @Test
    void aNamedLeaderIsFollowedOnlyIfItIsConfigured() {
        ServerChoice choice = new ServerChoice(ServerAddress.parseAll("a.example:1,b.example:2"));
        assertEquals(1, choice.indexOf("b.example:2"));
        assertEquals(1, choice.indexOf("http://B.example:2"));
        assertEquals(-1, choice.indexOf("evil.example:2"));
        assertEquals(-1, choice.indexOf("not an address"));
    }

    @Test
    void theEnvironmentIsThatOfTheCommandLine() {
        assertEquals("a:1", new ClientBuilder(Map.of("LEASEHOLD_ADDR", "a:1")).build().settings().servers().get(0).toString());
        ClientBuilder incomplete = new ClientBuilder(Map.of("LEASEHOLD_TLS_CA", "/ca.pem"));
        assertEquals("tls_cert", assertThrows(InvalidRequestException.class, incomplete::build).field("key").orElseThrow());
        ClientBuilder absent = new ClientBuilder(Map.of("LEASEHOLD_BEARER_FILE", "/does/not/exist"));
        assertEquals("bearer_file", assertThrows(InvalidRequestException.class, absent::build).field("key").orElseThrow());
    }

    @Test
    void aLocalDeadlineIsShorterThanTheGrantAndAClaimWaitsLonger() {
        assertEquals(Duration.ofMillis(9_800).toNanos(), ClockDrift.shrink(10_001));
        assertEquals(0, ClockDrift.shrink(0));
        assertTrue(ClockDrift.stretch(4_949) >= Duration.ofMillis(5_050).toNanos());
        assertTrue(ClockDrift.stretch(4_949) < Duration.ofMillis(5_060).toNanos());
    }

    @Test
    void theBootClockIsReadFromItsFile() {
        assertEquals(1_234_560_000_000L, BootClock.parse("1234.56 99.00\n"));
        assertEquals(-1, BootClock.parse("no number"));
        long before = HolderClock.system().nanos();
        assertTrue(HolderClock.system().nanos() >= before);
        assertTrue(Math.abs(HolderClock.system().nanos() - System.nanoTime()) < Duration.ofDays(3650).toNanos());
    }

    @Test
    void durationsAreTextRoundedUp() {
        assertEquals("1500ms", Body.duration(Duration.ofMillis(1500)));
        assertEquals("1ms", Body.duration(Duration.ofNanos(1)));
        assertThrows(InvalidRequestException.class, () -> Body.duration(Duration.ofMillis(-1)));
        assertEquals("a%20b/%C3%A4", Body.path("a b/ä"));
    }

    @Test
    void anActorNameIsReusedOnlyAfterItsRelease() {
        ActorNames actors = new ActorNames();
        assertEquals(List.of(0, 1, 2), List.of(actors.take(), actors.take(), actors.take()));
        actors.release(1);
        assertEquals(List.of(1, 3), List.of(actors.take(), actors.take()));
        assertEquals("", ActorNames.name(0, "w"));
        assertEquals("w#7", ActorNames.name(7, "w"));
        assertFalse(actors.take() < 4);
    }
}
