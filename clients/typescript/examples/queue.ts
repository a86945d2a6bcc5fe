// Send messages, and work on them. Each message is with one worker at a time.
//
//   node queue.ts send a b c
//   node queue.ts work

import { Client } from "leasehold";

await using client = new Client();
const queue = client.queue("mail", { visibility: "30s" });
const [command, ...bodies] = process.argv.slice(2);
if (command === "send") {
  for (const body of bodies) console.log(`sent ${await queue.send(body, { maxAttempts: 3 })}`);
} else {
  const stop = new AbortController();
  process.once("SIGINT", () => stop.abort());
  for await (const message of queue.messages({ signal: stop.signal })) {
    // Acknowledged when the work returns, returned to the queue if it fails, extended by a thread for as long as it takes.
    await message.process(async (received) => console.log(`${received.text()} (attempt ${received.attempt})`));
  }
}
