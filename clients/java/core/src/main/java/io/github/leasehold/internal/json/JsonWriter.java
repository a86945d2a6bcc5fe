package io.github.leasehold.internal.json;

import java.util.Map;

/** Writes JSON without spaces. */
final class JsonWriter {
    private JsonWriter() {}

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        append(out, value);
        return out.toString();
    }

    private static void append(StringBuilder out, Object value) {
        if (value instanceof Map<?, ?> map) {
            appendObject(out, map);
        } else if (value instanceof Iterable<?> list) {
            out.append('[');
            boolean empty = true;
            for (Object member : list) {
                out.append(empty ? "" : ",");
                empty = false;
                append(out, member);
            }
            out.append(']');
        } else if (value instanceof CharSequence text) {
            appendText(out, text);
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            throw new IllegalArgumentException("not a JSON value: " + value.getClass());
        }
    }

    private static void appendObject(StringBuilder out, Map<?, ?> map) {
        out.append('{');
        boolean empty = true;
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            if (!empty) {
                out.append(',');
            }
            empty = false;
            appendText(out, (CharSequence) entry.getKey());
            out.append(':');
            append(out, entry.getValue());
        }
        out.append('}');
    }

    private static void appendText(StringBuilder out, CharSequence text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
