package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.testkit.LeaseholdServer;
import io.github.leasehold.testkit.TestProcess;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** TLS 1.3 with client certificates, made by openssl, against a real server. */
class TlsTest {
    @TempDir
    private Path directory;

    private String file(String name) {
        return directory.resolve(name).toString();
    }

    private void authority(String name) {
        TestProcess.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-keyout", file(name + ".key"),
                "-out", file(name + ".pem"), "-subj", "/CN=" + name, "-addext", "keyUsage=critical,keyCertSign,cRLSign");
    }

    private void issue(String name, String subjectName, String usage) throws Exception {
        Files.writeString(directory.resolve(name + ".ext"), "basicConstraints=critical,CA:FALSE\nsubjectAltName=" + subjectName + "\nextendedKeyUsage=" + usage
                + "\nkeyUsage=critical,digitalSignature\n");
        TestProcess.run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", file(name + ".key"), "-out", file(name + ".csr"),
                "-subj", "/CN=" + name);
        TestProcess.run("openssl", "x509", "-req", "-in", file(name + ".csr"), "-CA", file("ca.pem"), "-CAkey", file("ca.key"), "-CAcreateserial", "-days", "30", "-extfile",
                file(name + ".ext"), "-out", file(name + ".pem"));
        TestProcess.run("chmod", "600", file(name + ".key"));
    }

    private ClientBuilder client(LeaseholdServer server) {
        return LeaseholdClient.builder().servers("https://" + server.address()).holder("w-1").requestTimeout(Duration.ofSeconds(5));
    }

    @Test
    void aClientWithACertificateIsAcceptedAndBothSidesAreVerified() throws Exception {
        authority("ca");
        authority("other");
        issue("server", "IP:127.0.0.1", "serverAuth");
        issue("client", "DNS:worker-1.example.com", "clientAuth");
        Files.writeString(directory.resolve("access.toml"),
                "[[grant]]\nprincipal = \"dns:worker-1.example.com\"\nrole = \"admin\"\nprefix = \"\"\n");
        Path ca = directory.resolve("ca.pem");
        try (LeaseholdServer server = LeaseholdServer.start("--tls-cert", file("server.pem"), "--tls-key", file("server.key"), "--client-ca", file("ca.pem"), "--access",
                file("access.toml"))) {
            try (LeaseholdClient client = client(server).tlsCa(ca).tlsCertificate(directory.resolve("client.pem"), directory.resolve("client.key")).build();
                    Lease lease = client.acquire("x")) {
                assertTrue(lease.isHeld());
                lease.check();
            }
            try (LeaseholdClient stranger = client(server).tlsCa(directory.resolve("other.pem"))
                    .tlsCertificate(directory.resolve("client.pem"), directory.resolve("client.key")).requestTimeout(Duration.ofSeconds(1)).build()) {
                UnavailableException refused = assertThrows(UnavailableException.class, () -> stranger.acquire("x"));
                assertTrue(refused.getMessage().contains("certif") || refused.getMessage().contains("PKIX"), refused.getMessage());
            }
            try (LeaseholdClient plain = client(server).requestTimeout(Duration.ofSeconds(1)).build()) {
                assertTrue(assertThrows(UnavailableException.class, () -> plain.acquire("x")).getMessage().contains("needs TLS"));
            }
        }
        ClientBuilder noKey = LeaseholdClient.builder().tlsCa(ca).tlsCertificate(directory.resolve("client.pem"), directory.resolve("ca.pem"));
        assertEquals("CONFIG", assertThrows(InvalidRequestException.class, noKey::build).code());
    }
}
