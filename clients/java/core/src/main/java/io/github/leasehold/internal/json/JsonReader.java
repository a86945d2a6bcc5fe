package io.github.leasehold.internal.json;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A strict parser of JSON (RFC 8259). Nesting is limited, so that no reply can exhaust the stack. */
final class JsonReader {
    private static final int MAX_DEPTH = 64;

    private final String text;
    private int at;

    JsonReader(String text) {
        this.text = text;
    }

    Object read() throws JsonException {
        Object value = value(0);
        skipSpace();
        if (at < text.length()) {
            throw error("text after the value");
        }
        return value;
    }

    private Object value(int depth) throws JsonException {
        if (depth > MAX_DEPTH) {
            throw error("nested more than " + MAX_DEPTH + " levels");
        }
        skipSpace();
        switch (peek()) {
            case '{':
                return object(depth);
            case '[':
                return array(depth);
            case '"':
                return string();
            case 't':
                return literal("true", Boolean.TRUE);
            case 'f':
                return literal("false", Boolean.FALSE);
            case 'n':
                return literal("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object(int depth) throws JsonException {
        Map<String, Object> object = new LinkedHashMap<>();
        at++;
        skipSpace();
        if (peek() == '}') {
            at++;
            return object;
        }
        while (true) {
            skipSpace();
            if (peek() != '"') {
                throw error("expected a key");
            }
            String key = string();
            skipSpace();
            expect(':');
            Object value = value(depth + 1);
            if (object.containsKey(key)) {
                throw error("the key \"" + key + "\" occurs twice");
            }
            object.put(key, value);
            skipSpace();
            if (peek() == '}') {
                at++;
                return object;
            }
            expect(',');
        }
    }

    private List<Object> array(int depth) throws JsonException {
        List<Object> array = new ArrayList<>();
        at++;
        skipSpace();
        if (peek() == ']') {
            at++;
            return array;
        }
        while (true) {
            array.add(value(depth + 1));
            skipSpace();
            if (peek() == ']') {
                at++;
                return array;
            }
            expect(',');
        }
    }

    private String string() throws JsonException {
        StringBuilder out = new StringBuilder();
        at++;
        while (true) {
            char c = peek();
            at++;
            if (c == '"') {
                return out.toString();
            }
            if (c < ' ') {
                throw error("a control character in text");
            }
            out.append(c == '\\' ? escape() : c);
        }
    }

    private char escape() throws JsonException {
        char c = peek();
        at++;
        switch (c) {
            case '"':
            case '\\':
            case '/':
                return c;
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                return unicode();
            default:
                throw error("an unknown escape");
        }
    }

    private char unicode() throws JsonException {
        int code = 0;
        for (int digit = 0; digit < 4; digit++) {
            int value = Character.digit(peek(), 16);
            if (value < 0 || peek() > 'f') {
                throw error("an invalid \\u escape");
            }
            code = code * 16 + value;
            at++;
        }
        return (char) code;
    }

    private Object literal(String word, Object value) throws JsonException {
        if (!text.startsWith(word, at)) {
            throw error("not a value");
        }
        at += word.length();
        return value;
    }

    private Object number() throws JsonException {
        int start = at;
        boolean whole = true;
        if (peek() == '-') {
            at++;
        }
        if (peek() == '0') {
            at++;
        } else {
            digits();
        }
        if (at < text.length() && text.charAt(at) == '.') {
            whole = false;
            at++;
            digits();
        }
        if (at < text.length() && (text.charAt(at) == 'e' || text.charAt(at) == 'E')) {
            whole = false;
            at++;
            if (peek() == '+' || peek() == '-') {
                at++;
            }
            digits();
        }
        String digits = text.substring(start, at);
        try {
            return whole ? (Object) Long.valueOf(digits) : Double.valueOf(digits);
        } catch (NumberFormatException tooLarge) {
            // Above 2^63 - 1; the interface writes such numbers as text.
            return Double.valueOf(digits);
        }
    }

    private void digits() throws JsonException {
        int start = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        if (at == start) {
            throw error("not a value");
        }
    }

    private void skipSpace() {
        while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() throws JsonException {
        if (at >= text.length()) {
            throw error("the text ends within a value");
        }
        return text.charAt(at);
    }

    private void expect(char c) throws JsonException {
        if (peek() != c) {
            throw error("expected '" + c + "'");
        }
        at++;
    }

    private JsonException error(String message) {
        return new JsonException(message, at);
    }
}
