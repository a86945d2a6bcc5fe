package io.github.leasehold;

import io.github.leasehold.internal.json.Json;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/** Request and reply bodies: durations, paths and bytes as the HTTP interface writes them. */
final class Body {
    private Body() {}

    /** A JSON object from keys and values. Null values are left out. */
    static String object(Object... keysAndValues) {
        return Json.write(map(keysAndValues));
    }

    /** A map from keys and values. Null values are left out. */
    static Map<String, Object> map(Object... keysAndValues) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            if (keysAndValues[i + 1] != null) {
                map.put((String) keysAndValues[i], keysAndValues[i + 1]);
            }
        }
        return map;
    }

    /** A duration as text, rounded up to milliseconds. */
    static String duration(Duration duration) {
        if (duration == null) {
            return null;
        }
        if (duration.isNegative()) {
            throw new InvalidRequestException(Problem.invalid("duration", "negative"));
        }
        long millis = duration.toMillis();
        return (duration.minusMillis(millis).isZero() ? millis : millis + 1) + "ms";
    }

    static String bytes(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    /** Bytes of a reply: {@code field_base64}, or the text of {@code field}. */
    static Optional<byte[]> bytes(Map<String, Object> body, String field) {
        Optional<String> encoded = Json.text(body, field + "_base64");
        if (encoded.isPresent()) {
            try {
                return Optional.of(Base64.getDecoder().decode(encoded.get()));
            } catch (IllegalArgumentException invalid) {
                throw invalidReply(field + "_base64 is not base64", invalid);
            }
        }
        return Json.text(body, field).map(text -> text.getBytes(StandardCharsets.UTF_8));
    }

    static String require(Map<String, Object> body, String field) {
        return Json.text(body, field).orElseThrow(() -> invalidReply("it has no text in \"" + field + "\"", null));
    }

    static long requireNumber(Map<String, Object> body, String field) {
        return Json.number(body, field).orElseThrow(() -> invalidReply("it has no number in \"" + field + "\"", null));
    }

    static ServerFailureException invalidReply(String reason, Throwable cause) {
        String detail = "invalid reply from the server: " + reason;
        return new ServerFailureException(new Problem("FRAME_ERROR", detail, "Check that client and server have the same version.", Map.of(), cause));
    }

    /** Path of a name. Slashes separate segments; other characters that are not plain are percent-encoded. */
    static String path(String name) {
        return percentEncode(name, "/");
    }

    /** A query parameter, or the value of a header. */
    static String encode(String text) {
        return percentEncode(text, "");
    }

    private static String percentEncode(String text, String alsoPlain) {
        StringBuilder out = new StringBuilder();
        for (byte b : text.getBytes(StandardCharsets.UTF_8)) {
            char c = (char) (b & 0xff);
            if (c < 128 && (Character.isLetterOrDigit(c) || "-._~".indexOf(c) >= 0 || alsoPlain.indexOf(c) >= 0)) {
                out.append(c);
            } else {
                out.append(String.format("%%%02X", (int) c));
            }
        }
        return out.toString();
    }

    /** A name that a path can carry. */
    static String name(String field, String name) {
        if (name == null || name.isEmpty()) {
            throw new InvalidRequestException(Problem.invalid(field, "empty; pass a name such as jobs/settle"));
        }
        return name;
    }
}
