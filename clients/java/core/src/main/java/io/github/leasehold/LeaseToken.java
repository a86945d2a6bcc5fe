package io.github.leasehold;

import io.github.leasehold.internal.json.Json;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The fencing token of a lease. A rotation replaces it as a whole.
 *
 * @param text what the holder presents
 * @param number number of the token
 * @param stamped texts for sealed targets, by the name of the target
 */
record LeaseToken(String text, long number, Map<String, String> stamped) {
    /** The token of a grant, or of a reply that has one. */
    static LeaseToken of(Map<String, Object> body) {
        Map<String, String> stamped = new LinkedHashMap<>();
        if (body.get("stamped_tokens") instanceof Map<?, ?> map) {
            map.forEach((target, text) -> stamped.put(String.valueOf(target), String.valueOf(text)));
        }
        try {
            return new LeaseToken(Body.require(body, "token"), Long.parseLong(Body.require(body, "token_number")), Map.copyOf(stamped));
        } catch (NumberFormatException invalid) {
            throw Body.invalidReply("the token number is not a number", invalid);
        }
    }

    /** Whether a reply has a token. */
    static boolean isIn(Map<String, Object> body) {
        return Json.text(body, "token").isPresent() && Json.text(body, "token_number").isPresent();
    }
}
