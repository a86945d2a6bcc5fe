package io.github.leasehold;

import java.util.Optional;

/**
 * A field or a setting has an invalid value.
 */
public final class InvalidRequestException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    InvalidRequestException(Problem problem) {
        super(problem);
    }

    /**
     * The invalid field.
     *
     * @return its name; empty if the server named none
     */
    public Optional<String> invalidField() {
        return field("field");
    }
}
