package io.github.leasehold.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.InvalidRequestException;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.ServerFailureException;
import io.github.leasehold.StaleTokenException;
import io.github.leasehold.TokenRefusedException;
import io.github.leasehold.testkit.LeaseholdServer;
import io.github.leasehold.testkit.RedisServer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The Redis fence, with a real server, a real Redis and the real Lettuce. */
class RedisFenceTest {
    private static LeaseholdServer server;
    private static RedisServer redisServer;
    private static RedisClient redisClient;
    private static StatefulRedisConnection<String, String> connection;
    private static RedisCommands<String, String> redis;
    private static LeaseholdClient client;

    @BeforeAll
    static void startServers() {
        server = LeaseholdServer.start();
        redisServer = RedisServer.start();
        redisClient = RedisClient.create(redisServer.url());
        connection = redisClient.connect();
        redis = connection.sync();
        client = LeaseholdClient.builder().servers(server.address()).holder("w-1").build();
    }

    @AfterAll
    static void stopServers() {
        client.close();
        connection.close();
        redisClient.shutdown(Duration.ZERO, Duration.ZERO);
        redisServer.close();
        server.close();
    }

    private static Lease successor(Lease first) throws InterruptedException {
        first.close();
        return client.acquire(first.resource(), AcquireOptions.defaults().wait(Duration.ofSeconds(30)));
    }

    @Test
    void aStaleTokenIsRefusedInTheStepOfTheCommand() throws Exception {
        RedisFence.install(redis);
        RedisFence.install(redis);
        Lease first = client.acquire("jobs/settle");
        RedisFence old = new RedisFence(first);
        old.arm(redis);
        old.claim(redis);
        String key = "{jobs/settle}:paid:7";
        old.write(redis, List.of(key), "SET", key, "1200");
        assertEquals("1200", redis.get(key));
        Lease second = successor(first);
        RedisFence current = new RedisFence(second);
        current.claim(redis);
        StaleTokenException stale = assertThrows(StaleTokenException.class, () -> old.write(redis, List.of(key), "SET", key, "0"));
        assertEquals(Long.toString(first.tokenNumber()), stale.presented().orElseThrow());
        assertEquals(Long.toString(second.tokenNumber()), stale.mark().orElseThrow());
        assertThrows(StaleTokenException.class, () -> old.claim(redis));
        assertEquals("1200", redis.get(key));
        long length = current.<Long>write(redis, ScriptOutputType.INTEGER, List.of(key), "APPEND", key, "x");
        assertEquals(5, length);
        CompletionException async = assertThrows(CompletionException.class,
                () -> old.writeAsync(connection.async(), ScriptOutputType.STATUS, List.of(key), "SET", key, "0").toCompletableFuture().join());
        assertTrue(async.getCause() instanceof StaleTokenException, async.toString());
        assertEquals("OK", current.<String>writeAsync(connection.async(), ScriptOutputType.STATUS, List.of(key), "SET", key, "1").toCompletableFuture().join());
        second.close();
    }

    @Test
    void otherRefusalsHaveTheirOwnTypes() throws Exception {
        RedisFence.install(redis);
        try (Lease lease = client.acquire("jobs/other"); Lease reader = client.acquire("jobs/read", AcquireOptions.defaults().shared())) {
            RedisFence fence = new RedisFence(lease);
            assertThrows(ServerFailureException.class, () -> fence.claim(redis), "no mark is stored");
            fence.arm(redis);
            fence.claim(redis);
            assertThrows(InvalidRequestException.class, () -> fence.write(redis, List.of(), "FLUSHALL"));
            assertThrows(RedisCommandExecutionException.class, () -> fence.write(redis, List.of("{jobs/other}:a"), "INCRBY", "{jobs/other}:a", "no number"));
            assertNull(redis.get("{jobs/other}:a"));
            RedisFence shared = new RedisFence(reader);
            shared.arm(redis);
            assertEquals("shared", assertThrows(TokenRefusedException.class, () -> shared.claim(redis)).field("reason").orElseThrow());
        }
    }
}
