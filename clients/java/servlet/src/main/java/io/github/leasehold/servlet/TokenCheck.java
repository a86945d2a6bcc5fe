package io.github.leasehold.servlet;

import io.github.leasehold.LeaseholdException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.CRC32;

/**
 * Parses a token and checks that it is for one cluster, resource and slot. The same rules as of the other fences; a sealed token
 * ({@code lh2-}) means what its first 76 bytes mean, because this fence has no keys.
 */
record TokenCheck(String cluster, String name, String resourceHash, String slot) {
    private static final Pattern TOKEN = Pattern.compile(
            "lh([12])-([0-9a-f]{16})-([0-9a-f]{8})-([0-9a-f]{16})-([wru])([0-9a-f]{8})-(\\d{19})-([0-9a-f]{8})(-[A-Za-z0-9_-]{85}[AQgw])?");
    private static final long ERA_MILLIS = 1_735_689_600_000L;
    private static final long DAY_MILLIS = 86_400_000;
    private static final int BODY = 76;

    static TokenCheck of(String cluster, String resource, int slot) {
        if (!cluster.matches("[0-9a-f]{16}")) {
            throw Problems.invalid("cluster", "not 16 hexadecimal digits; `leasehold status` shows the id of the cluster");
        }
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(resource.getBytes(StandardCharsets.UTF_8));
            return new TokenCheck(cluster, resource, HexFormat.of().formatHex(hash, 0, 8), String.format("%08x", slot));
        } catch (NoSuchAlgorithmException absent) {
            throw new IllegalStateException("every Java platform has SHA-256", absent);
        }
    }

    /** Returns the number of the token, or throws the refusal. */
    long verify(String token) {
        if (token.isEmpty()) {
            throw refused("TOKEN_INVALID", "absent", "no token was presented", "Send the token text of the grant as Lease-Token.", null);
        }
        Matcher parts = TOKEN.matcher(token);
        boolean sealed = token.startsWith("lh2-");
        if (!parts.matches() || sealed != (parts.group(9) != null)) {
            throw refused("TOKEN_INVALID", "shape", "the text is not a token", "Pass the token text of the grant unchanged.", null);
        }
        if (!sealed && checksum(token.substring(0, BODY)) != Long.parseLong(parts.group(8), 16)) {
            throw refused("TOKEN_INVALID", "checksum", "the checksum does not match", "Pass the token text of the grant unchanged.", null);
        }
        if (!parts.group(2).equals(cluster)) {
            throw refused("WRONG_CLUSTER", "cluster", "the token is from another cluster", "Send the request to the target of that cluster.", null);
        }
        if (!parts.group(4).equals(resourceHash)) {
            throw refused("TOKEN_INVALID", "resource", "the token is for another resource than " + name, "Present the token of that resource.", null);
        }
        if (!parts.group(5).equals("w")) {
            throw refused("TOKEN_INVALID", "shared", "the token is of a shared lease or a reservation", "Acquire an exclusive lease.", null);
        }
        if (!parts.group(6).equals(slot)) {
            throw refused("TOKEN_INVALID", "slot", "the token is for another slot", "Present the token of slot " + Long.parseLong(slot, 16) + ".", null);
        }
        long number;
        try {
            number = Long.parseLong(parts.group(7));
        } catch (NumberFormatException tooLarge) {
            throw refused("TOKEN_INVALID", "too_large", "the number is too large", "Pass the token text of the grant unchanged.", null);
        }
        if (number == 0) {
            throw refused("TOKEN_INVALID", "zero", "the number is zero", "Pass the token text of the grant unchanged.", null);
        }
        if (number > (System.currentTimeMillis() - ERA_MILLIS + DAY_MILLIS) << 22) {
            throw refused("TOKEN_IMPLAUSIBLE", "implausible", "the number is more than one day ahead of the clock", "Compare the clocks.", number);
        }
        return number;
    }

    private static long checksum(String body) {
        CRC32 crc = new CRC32();
        crc.update(body.getBytes(StandardCharsets.US_ASCII));
        return crc.getValue();
    }

    private static LeaseholdException refused(String code, String reason, String detail, String nextStep, Long presented) {
        Map<String, Object> fields = new LinkedHashMap<>(Map.of("field", "lease-token", "reason", reason));
        if (presented != null) {
            fields.put("presented", Long.toString(presented));
        }
        return LeaseholdException.of(code, detail, nextStep, fields, null);
    }
}
