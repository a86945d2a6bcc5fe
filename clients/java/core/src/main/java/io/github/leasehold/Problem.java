package io.github.leasehold;

import java.util.Locale;
import java.util.Map;

/** What an exception is made of: the fields of a problem body. */
record Problem(String code, String detail, String nextStep, Map<String, Object> fields, Throwable cause) {
    static Problem of(String code, String detail, String nextStep) {
        return new Problem(code, detail, nextStep, Map.of(), null);
    }

    static Problem invalid(String field, String reason) {
        return new Problem("INVALID_ARGUMENT", field + ": " + reason, "Change the field and retry.", Map.of("field", field, "reason", reason), null);
    }

    static Problem unavailable(String detail, Throwable cause) {
        return new Problem("UNAVAILABLE", detail, "Check that a server is running at one of the addresses.", Map.of(), cause);
    }

    /** One line: code, description and next step. Most refusals of a server already end with the next step. */
    String line() {
        if (detail.contains("; ") || nextStep.isEmpty()) {
            return code + ": " + detail;
        }
        String step = nextStep.endsWith(".") ? nextStep.substring(0, nextStep.length() - 1) : nextStep;
        return code + ": " + detail + "; " + step.substring(0, 1).toLowerCase(Locale.ROOT) + step.substring(1);
    }
}
