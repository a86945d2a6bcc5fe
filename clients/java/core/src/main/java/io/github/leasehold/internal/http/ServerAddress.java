package io.github.leasehold.internal.http;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Address of one server: {@code HOST:PORT}, {@code http://HOST:PORT}, {@code https://HOST:PORT} or {@code unix:PATH}.
 *
 * @param host host without brackets; empty for a Unix socket
 * @param port port; 0 for a Unix socket
 * @param requiresTls whether the address itself requires TLS
 * @param socket path of the Unix socket, or null
 */
public record ServerAddress(String host, int port, boolean requiresTls, Path socket) {
    private static final int DEFAULT_PORT = 7421;

    /** Parses addresses separated by commas. */
    public static List<ServerAddress> parseAll(String text) {
        List<ServerAddress> addresses = new ArrayList<>();
        for (String part : text.split(",")) {
            if (!part.isBlank()) {
                addresses.add(parse(part.trim()));
            }
        }
        if (addresses.isEmpty()) {
            throw new IllegalArgumentException("no address; write HOST:PORT, https://HOST:PORT or unix:PATH");
        }
        return List.copyOf(addresses);
    }

    /** Parses one address. */
    public static ServerAddress parse(String text) {
        if (text.startsWith("unix:")) {
            String path = text.substring("unix:".length());
            if (path.startsWith("//")) {
                path = path.substring(2);
            }
            if (path.isEmpty()) {
                throw invalid(text);
            }
            return new ServerAddress("", 0, false, Path.of(path));
        }
        boolean tls = text.startsWith("https://");
        String rest = tls ? text.substring("https://".length()) : text.startsWith("http://") ? text.substring("http://".length()) : text;
        if (rest.endsWith("/")) {
            rest = rest.substring(0, rest.length() - 1);
        }
        int colon = rest.lastIndexOf(':');
        boolean bareIpv6 = rest.startsWith("[") && rest.endsWith("]");
        String host = colon < 0 || bareIpv6 ? rest : rest.substring(0, colon);
        int port = colon < 0 || bareIpv6 ? DEFAULT_PORT : port(text, rest.substring(colon + 1));
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        } else if (host.contains(":")) {
            throw invalid(text);
        }
        if (host.isEmpty() || host.contains("/") || host.contains("@") || host.contains(" ")) {
            throw invalid(text);
        }
        return new ServerAddress(host, port, tls, null);
    }

    private static int port(String text, String digits) {
        try {
            int port = Integer.parseInt(digits);
            if (port > 0 && port < 65_536) {
                return port;
            }
        } catch (NumberFormatException notANumber) {
            throw invalid(text);
        }
        throw invalid(text);
    }

    private static IllegalArgumentException invalid(String text) {
        return new IllegalArgumentException("\"" + text + "\" is not an address; write HOST:PORT, https://HOST:PORT or unix:PATH");
    }

    /** Whether this is a Unix socket. */
    public boolean isUnixSocket() {
        return socket != null;
    }

    /** Value of the header Host. */
    public String authority() {
        if (isUnixSocket()) {
            return "localhost";
        }
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }

    /** Whether another server names this one by {@code address}, with or without a scheme. */
    public boolean isNamed(String address) {
        try {
            ServerAddress other = parse(address);
            return !isUnixSocket() && other.host.equalsIgnoreCase(host) && other.port == port;
        } catch (IllegalArgumentException invalid) {
            return false;
        }
    }

    @Override
    public String toString() {
        return isUnixSocket() ? "unix:" + socket : (requiresTls ? "https://" : "") + authority();
    }
}
