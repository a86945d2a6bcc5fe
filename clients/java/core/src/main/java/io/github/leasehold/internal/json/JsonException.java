package io.github.leasehold.internal.json;

import java.io.IOException;

/** Text that is not JSON. An {@link IOException}, because it only occurs in what a peer sent. */
public final class JsonException extends IOException {
    private static final long serialVersionUID = 1;

    /** Creates the exception with the position in the text. */
    public JsonException(String message, int position) {
        super(message + " at character " + position);
    }
}
