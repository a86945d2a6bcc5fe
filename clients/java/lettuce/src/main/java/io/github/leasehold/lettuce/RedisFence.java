package io.github.leasehold.lettuce;

import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdException;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.async.RedisFunctionAsyncCommands;
import io.lettuce.core.api.sync.RedisFunctionCommands;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Sends Redis commands through the functions of the fence: the server checks the token and runs the command in one step.
 *
 * <pre>{@code
 * RedisFence fence = new RedisFence(lease);
 * fence.claim(redis);                                            // before reading
 * fence.write(redis, List.of("{jobs/settle}:paid:7"), "SET", "{jobs/settle}:paid:7", "1200");
 * }</pre>
 *
 * <p>Needs Redis or Valkey 7 with the functions ({@link #install}), and an armed mark ({@link #arm}, or {@code leasehold fence arm}). In a
 * cluster all keys of a command have the hash tag of the mark: the name of the resource in braces. A client that does not call the functions
 * is not stopped.
 */
public final class RedisFence {
    private static final Pattern VALUE = Pattern.compile("\\b(presented|mark|reason|field|incarnation)=(\\S+)");

    private final Lease lease;
    private final String hashTag;

    /**
     * A fence whose mark is stored with the keys whose hash tag is the name of the resource.
     *
     * @param lease an exclusive lease, or one of a slot
     */
    public RedisFence(Lease lease) {
        this(lease, lease.resource());
    }

    /**
     * A fence whose mark has another hash tag, for data that already has one. All holders must use the same tag.
     *
     * @param lease an exclusive lease, or one of a slot
     * @param hashTag the tag without braces
     */
    public RedisFence(Lease lease, String hashTag) {
        this.lease = lease;
        this.hashTag = hashTag;
    }

    /**
     * Installs the functions, once per primary. It keeps the current version and replaces an earlier one.
     *
     * @param redis a connection to the primary
     */
    public static void install(RedisFunctionCommands<String, String> redis) {
        redis.functionLoad("#!lua name=leasehold\n" + read("fence.lua") + read("functions.lua"), true);
    }

    private static String read(String name) {
        try (InputStream in = RedisFence.class.getResourceAsStream(name)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /**
     * Arms the mark of this resource, once. An existing mark stays as it is.
     *
     * @param redis a connection to the primary
     */
    public void arm(RedisFunctionCommands<String, String> redis) {
        String token = lease.token();
        call(() -> redis.fcall("leasehold_arm", ScriptOutputType.STATUS, new String[] {key()}, token.substring(4, 20), token.substring(30, 46),
                token.substring(48, 56), lease.resource(), "0"));
    }

    /**
     * Claims the target for this holder: every earlier holder is refused from then on. Claim before you read.
     *
     * @param redis a connection to the primary
     * @throws io.github.leasehold.StaleTokenException if a later holder has claimed
     */
    public void claim(RedisFunctionCommands<String, String> redis) {
        call(() -> redis.fcall("leasehold_claim", ScriptOutputType.VALUE, new String[] {key()}, lease.token()));
    }

    /**
     * Runs a command if the token is current.
     *
     * @param <T> type of the reply
     * @param redis a connection to the primary
     * @param type type of the reply, as for a script
     * @param keys the keys of the command
     * @param command the command with all its arguments, including the keys
     * @return the reply of the command
     * @throws io.github.leasehold.StaleTokenException if a later holder has claimed; the command was not executed
     */
    public <T> T write(RedisFunctionCommands<String, String> redis, ScriptOutputType type, List<String> keys, String... command) {
        return call(() -> redis.fcall("leasehold_write", type, allKeys(keys), arguments(command)));
    }

    /**
     * Runs a command if the token is current, and ignores its reply.
     *
     * @param redis a connection to the primary
     * @param keys the keys of the command
     * @param command the command with all its arguments, including the keys
     * @throws io.github.leasehold.StaleTokenException if a later holder has claimed; the command was not executed
     */
    public void write(RedisFunctionCommands<String, String> redis, List<String> keys, String... command) {
        this.<Object>write(redis, ScriptOutputType.MULTI, keys, command);
    }

    /**
     * Runs a command if the token is current.
     *
     * @param <T> type of the reply
     * @param redis a connection to the primary
     * @param type type of the reply, as for a script
     * @param keys the keys of the command
     * @param command the command with all its arguments, including the keys
     * @return completes with the reply, or with a {@link io.github.leasehold.StaleTokenException}
     */
    public <T> CompletionStage<T> writeAsync(
            RedisFunctionAsyncCommands<String, String> redis, ScriptOutputType type, List<String> keys, String... command) {
        CompletionStage<T> reply = redis.fcall("leasehold_write", type, allKeys(keys), arguments(command));
        return reply.handle((value, error) -> {
            if (error == null) {
                return value;
            }
            Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
            throw cause instanceof RedisCommandExecutionException refused ? convert(refused) : new CompletionException(cause);
        });
    }

    /**
     * Key under which the mark is stored.
     *
     * @return the key
     */
    public String key() {
        String token = lease.token();
        return "leasehold:{" + hashTag + "}:" + token.substring(30, 46) + ":" + token.substring(48, 56);
    }

    private String[] allKeys(List<String> keys) {
        List<String> all = new ArrayList<>(List.of(key()));
        all.addAll(keys);
        return all.toArray(String[]::new);
    }

    private String[] arguments(String... command) {
        List<String> all = new ArrayList<>(List.of(lease.token(), ""));
        all.addAll(List.of(command));
        return all.toArray(String[]::new);
    }

    private static <T> T call(java.util.function.Supplier<T> command) {
        try {
            return command.get();
        } catch (RedisCommandExecutionException refused) {
            throw convert(refused);
        }
    }

    /** The first word of an error is its code; other errors of Redis pass unchanged. */
    private static RuntimeException convert(RedisCommandExecutionException error) {
        String text = String.valueOf(error.getMessage());
        int space = text.indexOf(' ');
        String code = space < 0 ? text : text.substring(0, space);
        if (text.contains("Function not found")) {
            return LeaseholdException.of("STORAGE_FAILED", "the functions of the fence are not installed", "Call RedisFence.install once.", Map.of(), error);
        }
        if (!List.of("STALE_TOKEN", "TOKEN_INVALID", "TOKEN_IMPLAUSIBLE", "WRONG_CLUSTER", "STORAGE_FAILED", "NOT_ADOPTED", "CONFLICT", "INVALID_ARGUMENT",
                "UNSUPPORTED_VERSION").contains(code)) {
            return error;
        }
        Map<String, Object> fields = new LinkedHashMap<>();
        Matcher values = VALUE.matcher(text);
        while (values.find()) {
            fields.put(values.group(1), values.group(2).replaceFirst("^0+(?=\\d)", ""));
        }
        int advice = text.lastIndexOf("; ");
        String nextStep = advice < 0 ? "Stop writing." : text.substring(advice + 2).replaceFirst("\\)$", ".");
        return LeaseholdException.of(code, text.substring(space + 1), nextStep, fields, error);
    }
}
