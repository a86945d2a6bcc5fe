package io.github.leasehold.internal.http;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** A TLS context from PEM files, as the command line uses them: CA certificates, and optionally a certificate with its key. */
public final class PemFiles {
    private static final Pattern KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----(.*?)-----END PRIVATE KEY-----", Pattern.DOTALL);
    private static final char[] NO_PASSWORD = {};

    private PemFiles() {}

    /** Creates the context. {@code certificate} and {@code key} are both null or both present. */
    public static SSLContext context(Path ca, Path certificate, Path key) {
        try {
            KeyStore trusted = emptyStore();
            int number = 0;
            for (Certificate one : certificates(ca)) {
                trusted.setCertificateEntry("ca-" + number++, one);
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(trusted);
            SSLContext context = SSLContext.getInstance("TLSv1.3");
            context.init(keyManagers(certificate, key), trust.getTrustManagers(), null);
            return context;
        } catch (IOException | GeneralSecurityException failed) {
            throw new IllegalArgumentException("cannot use the TLS files: " + failed.getMessage() + "; pass PEM files", failed);
        }
    }

    private static KeyManager[] keyManagers(Path certificate, Path key) throws IOException, GeneralSecurityException {
        if (certificate == null) {
            return null;
        }
        KeyStore own = emptyStore();
        own.setKeyEntry("client", privateKey(key), NO_PASSWORD, certificates(certificate).toArray(Certificate[]::new));
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(own, NO_PASSWORD);
        return factory.getKeyManagers();
    }

    private static KeyStore emptyStore() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Collection<? extends Certificate> certificates(Path file) throws IOException, GeneralSecurityException {
        Collection<? extends Certificate> found =
                CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(Files.readAllBytes(file)));
        if (found.isEmpty()) {
            throw new GeneralSecurityException(file + " contains no certificate");
        }
        return found;
    }

    private static PrivateKey privateKey(Path file) throws IOException, GeneralSecurityException {
        Matcher block = KEY.matcher(Files.readString(file));
        if (!block.find()) {
            throw new GeneralSecurityException(file + " contains no PRIVATE KEY block; convert it with `openssl pkcs8 -topk8 -nocrypt`");
        }
        PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(block.group(1)));
        for (String algorithm : List.of("EC", "Ed25519", "RSA")) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(spec);
            } catch (InvalidKeySpecException another) {
                // The key says itself which algorithm it has; the next one is tried.
            }
        }
        throw new GeneralSecurityException(file + " contains a key of an unknown algorithm; use EC, Ed25519 or RSA");
    }
}
