package io.github.leasehold;

import java.nio.charset.StandardCharsets;

/**
 * A value of the small state of a resource.
 *
 * @param key the key
 * @param bytes the value
 * @param revision rises with every change of the key
 * @param tokenNumber number of the token under which it was stored
 */
public record StoredValue(String key, byte[] bytes, long revision, long tokenNumber) {
    /**
     * The value as text.
     *
     * @return the bytes, decoded as UTF-8
     */
    public String text() {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
