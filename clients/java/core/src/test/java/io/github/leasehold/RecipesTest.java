package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Queues, small state, elections and service registration, against a real server. */
class RecipesTest extends ServerTest {
    @Test
    void aMessageIsWithOneWorkerUntilItIsAcknowledged() throws Exception {
        MessageQueue queue = client("producer").queue(resource());
        long id = queue.send("pay 7");
        assertTrue(queue.send(new byte[] {0, (byte) 0xff}, SendOptions.defaults()) > id);
        MessageQueue worker = client("w-1").queue(queue.name());
        try (ReceivedMessage message = worker.receive(LONG).orElseThrow()) {
            assertEquals(id, message.id());
            assertEquals("pay 7", message.text());
            assertEquals(1, message.attempt());
            assertTrue(message.token().startsWith("lh1-"));
            assertFalse(message.remaining().isZero());
            List<ReceivedMessage> others = client("w-2").queue(queue.name()).receive(10, Duration.ZERO);
            assertEquals(1, others.size());
            assertArrayEquals(new byte[] {0, (byte) 0xff}, others.get(0).body());
            others.get(0).close();
            message.extend(Duration.ofSeconds(20));
            message.ack();
        }
        ReceivedMessage again = worker.receive(LONG).orElseThrow();
        assertEquals(2, again.attempt(), "close returned it");
        again.ack();
        assertThrows(LeaseholdException.class, again::ack);
        assertEquals(new MessageQueue.Stats(0, 0, 0, 0), queue.stats());
    }

    @Test
    void aMessageOutOfAttemptsIsADeadLetter() throws Exception {
        MessageQueue queue = client("w-1").queue(resource());
        long id = queue.send("x".getBytes(), SendOptions.defaults().maxAttempts(1));
        queue.receive(LONG).orElseThrow().nack(Duration.ZERO);
        MessageQueue.DeadLetter dead = queue.deadLetters().get(0);
        assertEquals(id, dead.id());
        assertEquals("x", new String(dead.body()));
        queue.redrive(id);
        queue.receive(LONG).orElseThrow().nack(Duration.ZERO);
        queue.discard(id);
        assertEquals(0, queue.stats().dead());
    }

    @Test
    void aReceiverWaitsForAMessage() throws Exception {
        MessageQueue queue = client("w-1").queue(resource());
        assertTrue(queue.receive(Duration.ZERO).isEmpty());
        CompletableFuture<List<ReceivedMessage>> waiting = queue.receiveAsync(1, LONG);
        queue.send("late".getBytes(), SendOptions.defaults().delay(Duration.ofMillis(100)));
        assertEquals("late", waiting.get(LONG.toSeconds(), TimeUnit.SECONDS).get(0).text());
    }

    @Test
    void messagesInFlightDoNotDisturbTheLeasesOfTheSession() throws Exception {
        LeaseholdClient client = client("w-1");
        MessageQueue queue = client.queue(resource());
        queue.send("a");
        try (Lease lease = client.acquire(resource()); ReceivedMessage message = queue.receive(LONG).orElseThrow()) {
            Thread.sleep(4_000);
            assertTrue(lease.isHeld());
            message.ack();
        }
    }

    @Test
    void theSmallStateIsWrittenUnderTheTokenAndReadByAnyone() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        Lease lease = client.acquire(resource);
        long first = lease.put("checkpoint", "17");
        assertEquals("17", lease.get("checkpoint").orElseThrow().text());
        long second = lease.putIf("checkpoint", "18".getBytes(), first);
        assertTrue(second > first);
        assertThrows(ConflictException.class, () -> lease.putIf("checkpoint", "19".getBytes(), first));
        StoredValue read = client("reader").readState(resource, "checkpoint").orElseThrow();
        assertEquals("18", read.text());
        assertEquals(second, read.revision());
        assertEquals(lease.tokenNumber(), read.tokenNumber());
        assertTrue(client.readState(resource, "none").isEmpty());
        lease.delete("checkpoint");
        assertTrue(lease.get("checkpoint").isEmpty());
        lease.close();
        assertThrows(LeaseLostException.class, () -> lease.put("checkpoint", "20"));
    }

    @Test
    void oneCandidateLeadsAndAnotherAfterIt() throws Exception {
        String resource = resource();
        CountDownLatch finish = new CountDownLatch(1);
        AtomicReference<Long> firstToken = new AtomicReference<>();
        CountDownLatch leading = new CountDownLatch(1);
        LeaseholdClient one = client("w-1");
        CompletableFuture<String> first = background(() -> one.election(resource).lead(lease -> {
            firstToken.set(lease.tokenNumber());
            leading.countDown();
            finish.await();
            return "done";
        }));
        leading.await();
        LeaseholdClient two = client("w-2");
        CompletableFuture<Long> second = background(() -> two.election(resource).lead(Lease::tokenNumber));
        until("w-2 campaigns", () -> hasWaiter(resource));
        assertFalse(second.isDone());
        finish.countDown();
        assertEquals("done", first.get(LONG.toSeconds(), TimeUnit.SECONDS));
        assertTrue(second.get(LONG.toSeconds(), TimeUnit.SECONDS) > firstToken.get());
    }

    @Test
    void aLeaderThatWasRevokedDoesNotCampaignAgain() throws Exception {
        String resource = resource();
        LeaseholdClient client = client("w-1");
        CountDownLatch leading = new CountDownLatch(1);
        CompletableFuture<String> leader = background(() -> client.election(resource).lead(lease -> {
            leading.countDown();
            Thread.sleep(LONG.toMillis());
            return "not stopped";
        }));
        leading.await();
        server.post("/v1/leases/" + resource + ":revoke", "{\"comment\":\"test\"}");
        Exception ended = assertThrows(Exception.class, () -> leader.get(LONG.toSeconds(), TimeUnit.SECONDS));
        assertEquals(LeaseLostException.class, ended.getCause().getClass());
    }

    private static <T> CompletableFuture<T> background(java.util.concurrent.Callable<T> task) {
        CompletableFuture<T> future = new CompletableFuture<>();
        ClientThreads.daemon(() -> {
            try {
                future.complete(task.call());
            } catch (Exception failed) {
                future.completeExceptionally(failed);
            }
        }, "background").start();
        return future;
    }

    @Test
    void instancesAreListedWhileTheyAreRegistered() throws Exception {
        String service = resource();
        LeaseholdClient client = client("node-1");
        assertEquals(List.of(), client.instances(service));
        Lease registration = client.service(service, "a").details("10.0.0.1:8080").register();
        assertThrows(BusyException.class, () -> client("node-2").service(service, "a").register());
        Lease another = client.service(service, "b").ttl(Duration.ofSeconds(5)).wait(Duration.ofSeconds(1)).register();
        List<ServiceInstance> instances = client.instances(service);
        assertEquals(List.of("a", "b"), instances.stream().map(ServiceInstance::name).toList());
        assertEquals("10.0.0.1:8080", instances.get(0).details());
        assertEquals(registration.tokenNumber(), instances.get(0).tokenNumber());
        registration.close();
        assertEquals(List.of("b"), client.instances(service).stream().map(ServiceInstance::name).toList());
        another.close();
    }
}
