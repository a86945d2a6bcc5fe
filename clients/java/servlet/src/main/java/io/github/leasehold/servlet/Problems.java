package io.github.leasehold.servlet;

import io.github.leasehold.LeaseholdException;
import io.github.leasehold.internal.json.Json;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Refusals as {@code application/problem+json}, with the codes and statuses of the other fences. */
final class Problems {
    private static final Map<String, Integer> STATUS = Map.of(
            "INVALID_ARGUMENT", 400,
            "TOKEN_INVALID", 400,
            "TOKEN_IMPLAUSIBLE", 400,
            "STALE_TOKEN", 412,
            "WRONG_CLUSTER", 421,
            "UNAVAILABLE", 503,
            "STORAGE_FAILED", 500);
    private static final List<String> FIELDS = List.of("field", "reason", "presented", "mark");

    private Problems() {}

    static LeaseholdException invalid(String field, String reason) {
        return LeaseholdException.of("INVALID_ARGUMENT", field + ": " + reason, "Change the field and retry.", Map.of("field", field, "reason", reason), null);
    }

    static void write(HttpServletResponse response, LeaseholdException refused) throws IOException {
        int status = STATUS.getOrDefault(refused.code(), 500);
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("type", "urn:leasehold:error:" + refused.code());
        body.put("status", status);
        body.put("detail", refused.detail());
        body.put("code", refused.code());
        body.put("next_step", refused.nextStep());
        FIELDS.forEach(name -> refused.field(name).ifPresent(value -> body.put(name, value)));
        refused.field("retry_after_ms").map(Long::parseLong).ifPresent(millis -> {
            body.put("retry_after_ms", millis);
            response.setHeader("Retry-After", Long.toString((millis + 999) / 1000));
        });
        send(response, status, "application/problem+json", body);
    }

    static void done(HttpServletResponse response, long number) throws IOException {
        send(response, 200, "application/json", Map.of("claimed", Long.toString(number)));
    }

    private static void send(HttpServletResponse response, int status, String type, Map<String, Object> body) throws IOException {
        response.setStatus(status);
        response.setContentType(type);
        response.setCharacterEncoding("UTF-8");
        response.getWriter().write(Json.write(body));
    }
}
