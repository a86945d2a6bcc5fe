package io.github.leasehold.internal.json;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * JSON of the HTTP interface: strict parsing, writing, and typed access to the fields of an object.
 *
 * <p>Values are {@link Map}, {@link List}, {@link String}, {@link Long}, {@link Double}, {@link Boolean} and null. The client has its own
 * reader because the core artifact has no dependencies, and every JSON library of the ecosystem exists in versions that conflict.
 */
public final class Json {
    private Json() {}

    /** Parses one JSON value. Fails on anything else, also on text after the value and on a key that occurs twice. */
    public static Object parse(String text) throws JsonException {
        return new JsonReader(text).read();
    }

    /** Parses one JSON object. */
    @SuppressWarnings("unchecked")
    public static Map<String, Object> parseObject(String text) throws JsonException {
        if (parse(text) instanceof Map<?, ?> map) {
            return (Map<String, Object>) map;
        }
        throw new JsonException("not a JSON object", 0);
    }

    /** Writes a value. Maps keep their order. */
    public static String write(Object value) {
        return JsonWriter.write(value);
    }

    /** A field with text; empty if the field is absent, null or of another type. */
    public static Optional<String> text(Map<String, Object> object, String field) {
        return object.get(field) instanceof String text ? Optional.of(text) : Optional.empty();
    }

    /** A field with a whole number that is not negative; empty if it is absent, null or something else. */
    public static OptionalLong number(Map<String, Object> object, String field) {
        return object.get(field) instanceof Long number && number >= 0 ? OptionalLong.of(number) : OptionalLong.empty();
    }

    /** A field with a list of objects; members of other types are left out. */
    @SuppressWarnings("unchecked")
    public static List<Map<String, Object>> objects(Map<String, Object> object, String field) {
        if (!(object.get(field) instanceof List<?> list)) {
            return List.of();
        }
        return list.stream().filter(Map.class::isInstance).map(member -> (Map<String, Object>) member).toList();
    }

    /** Whether a field is true. */
    public static boolean isTrue(Map<String, Object> object, String field) {
        return Boolean.TRUE.equals(object.get(field));
    }
}
