// Driver of the conformance suite for the TypeScript client: one JSON request per line on standard input, one reply per line on
// standard output. The protocol is described in clients/conformance/README.md. Build the package first (`npm run build`).

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const version = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;

let leasehold = await import("../dist/esm/index.js"); // or the build with faults, after `break`
let clock = new leasehold.TestClock();
const clients = new Map();
const leases = new Map();
const running = new Map(); // AbortController by request id
const unknown = new Map(); // unresolved outcomes by request id: { error, done }
const finishers = new Map();
const deliveries = new Map();

class DriverError extends Error {
  constructor(code, message, nextStep = "Correct the request.") {
    super(message);
    Object.assign(this, { code, nextStep, isRetryable: false });
  }
}

const find = (map, key, kind) => {
  if (!map.has(key)) throw new DriverError("DRIVER", `${kind} ${JSON.stringify(key)} does not exist`);
  return map.get(key);
};
const clientOf = (request) => find(clients, request.client, "client");
const leaseOf = (request) => find(leases, request.lease, "lease");
const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null));

const acquireOptions = (request, signal) =>
  given({
    wait: request.wait_ms,
    ttl: request.ttl_ms,
    shared: request.shared,
    slots: request.slots,
    units: request.units,
    priority: request.priority,
    progress: request.progress_ms,
    maxHold: request.max_hold_ms,
    timeout: request.timeout_ms,
    signal,
  });

function grantOf(lease, slots) {
  const reply = { token: lease.token, token_number: lease.tokenNumber };
  if (slots) reply.slot = lease.slot;
  if (lease.overlapsMs !== undefined) reply.overlaps_ms = lease.overlapsMs;
  return reply;
}

function stateOf(lease) {
  const { state, loss } = lease;
  return state === "lost" ? { state, lost_state: loss.state, reason: loss.reason ?? null } : { state };
}

/** Runs an acquire; its outcome may be resolved later under the same id. */
async function granted(id, acquiring, signal, done) {
  try {
    const result = await acquiring;
    if (signal?.aborted) {
      await Promise.allSettled([result].flat().map((lease) => lease.release()));
      throw signal.reason;
    }
    return done(result);
  } catch (error) {
    if (error instanceof leasehold.OutcomeUnknownError) unknown.set(id, { error, done });
    throw error;
  }
}

const ops = {
  hello: () => ({ client: "typescript", version, skips: { fork: "Node.js programs do not fork" } }),

  async break({ property }) {
    if (clients.size > 0) throw new DriverError("DRIVER", "break comes before connect");
    if (!["renewal_on_main_loop", "no_token", "deadline_from_reply"].includes(property)) throw new DriverError("DRIVER", `unknown property ${property}`);
    globalThis.leaseholdMutant = property;
    leasehold = await import("../build/mutants/index.js");
    clock = new leasehold.TestClock();
    return {};
  },

  connect(request) {
    const tls = request.tls ? given(request.tls) : undefined;
    const options = given({
      servers: request.servers,
      holder: request.holder,
      sessionTtl: request.session_ttl_ms,
      requestTimeout: request.request_timeout_ms,
      tls: tls && Object.keys(tls).length > 0 ? tls : undefined,
      bearerFile: request.bearer_file,
    });
    clients.set(request.client, new leasehold.Client({ ...options, clock }));
    return {};
  },

  async close(request) {
    await clientOf(request).close();
    return {};
  },

  session: (request) => ({ session: clientOf(request).sessionId ?? null }),
  held_count: (request) => ({ held: clientOf(request).heldCount }),

  async hold_many(request) {
    const client = clientOf(request);
    let next = 0;
    let held = 0;
    const worker = async () => {
      while (next < request.count) {
        await client.acquire(`${request.prefix}/${next++}`);
        held += 1;
      }
    };
    await Promise.all(Array.from({ length: 32 }, worker));
    return { held };
  },

  acquire: (request, signal) =>
    granted(request.id, clientOf(request).acquire(request.resource, acquireOptions(request, signal)), signal, (lease) => {
      leases.set(request.lease, lease);
      return grantOf(lease, request.slots);
    }),

  acquire_all(request, signal) {
    const resources = request.resources.map(given);
    const { shared, slots, units, ...options } = acquireOptions(request, signal);
    return granted(request.id, clientOf(request).acquireAll(resources, options), signal, (acquired) => {
      acquired.forEach((lease, index) => leases.set(request.leases[index], lease));
      return { grants: acquired.map((lease) => grantOf(lease)) };
    });
  },

  async resolve({ request }) {
    const { error, done } = find(unknown, request, "unknown outcome");
    return await granted(request, error.resolve(), undefined, done);
  },

  async release(request) {
    await leaseOf(request).release();
    return {};
  },

  token: (request) => ({ token: leaseOf(request).token, token_number: leaseOf(request).tokenNumber }),
  state: (request) => stateOf(leaseOf(request)),
  remaining: (request) => ({ ms: Math.floor(leaseOf(request).remaining()) }),

  async wait_state(request, signal) {
    const lease = leaseOf(request);
    const states = request.state === "stopped" ? ["suspended", "lost"] : [request.state];
    await lease.waitState(states, given({ timeout: request.timeout_ms, signal }));
    return stateOf(lease);
  },

  async work(request) {
    const lease = leaseOf(request);
    const started = clock.now();
    const after = () => Math.round(clock.now() - started);
    try {
      await lease.run(
        (signal) =>
          new Promise((resolve, reject) => {
            finishers.set(request.lease, resolve);
            if (signal.aborted) reject(signal.reason);
            signal.addEventListener("abort", () => reject(signal.reason), { once: true });
          }),
      );
      return { stopped: false, after_ms: after() };
    } catch (error) {
      if (!(error instanceof leasehold.LeaseLostError || error instanceof leasehold.LeaseSuspendedError)) throw error;
      return { stopped: true, after_ms: after() };
    } finally {
      finishers.delete(request.lease);
    }
  },

  finish(request) {
    finishers.get(request.lease)?.();
    return {};
  },

  async progress(request) {
    await leaseOf(request).progress(request.progress);
    return {};
  },

  async put(request) {
    const options = given({ expectedRevision: request.expected_revision });
    return { revision: await leaseOf(request).put(request.key, request.value ?? undefined, options) };
  },

  async get(request) {
    const stored = await clientOf(request).get(request.resource, request.key);
    if (!stored) return { value: null };
    return { value: stored.text ?? null, revision: stored.revision, token_number: stored.tokenNumber };
  },

  async fenced_write(request) {
    try {
      const response = await leasehold.fencedFetch(leaseOf(request))(request.url, { method: "POST", body: request.body ?? "" });
      await response.arrayBuffer();
      return { status: response.status, code: null };
    } catch (error) {
      if (!(error instanceof leasehold.LeaseholdError) || error.status === undefined) throw error;
      return { status: error.status, code: error.code };
    }
  },

  async handoff(request) {
    await leaseOf(request).handoff(given({ to: request.to, mode: request.mode, drain: request.drain_ms }));
    return {};
  },

  async wait_draining(request, signal) {
    return { drain_ms: Math.floor(await leaseOf(request).waitDraining(given({ timeout: request.timeout_ms, signal }))) };
  },

  async finish_drain(request) {
    await leaseOf(request).finishDrain();
    return {};
  },

  async wait_claimable(request, signal) {
    const started = clock.now();
    await leaseOf(request).waitClaimable(given({ timeout: request.timeout_ms, signal }));
    return { after_ms: Math.round(clock.now() - started) };
  },

  async queue_send(request) {
    const options = given({ delay: request.delay_ms, maxAttempts: request.max_attempts });
    return { item: await clientOf(request).queue(request.queue).send(request.body, options) };
  },

  async queue_receive(request, signal) {
    const options = given({ limit: request.limit, visibility: request.visibility_ms, wait: request.wait_ms, signal });
    const messages = await clientOf(request).queue(request.queue).receive(options);
    for (const message of messages) deliveries.set(deliveryKey(request, message), message);
    return {
      deliveries: messages.map((message) => ({
        item: message.item,
        receipt: message.receipt,
        attempt: message.attempt,
        body: message.text(),
        token: message.token,
      })),
    };
  },

  async queue_ack(request) {
    await find(deliveries, deliveryKey(request, request), "delivery").ack();
    return {};
  },

  async queue_nack(request) {
    await find(deliveries, deliveryKey(request, request), "delivery").nack(given({ delay: request.delay_ms }));
    return {};
  },

  async queue_extend(request) {
    await find(deliveries, deliveryKey(request, request), "delivery").extend(request.visibility_ms ?? 30_000);
    return {};
  },

  block({ ms }) {
    const end = performance.now() + ms;
    while (performance.now() < end);
    return {};
  },

  advance_clock({ ms }) {
    clock.advance(ms);
    return {};
  },

  cancel({ request }) {
    const controller = running.get(request);
    controller?.abort(new DriverError("CANCELLED", "the request was canceled", "Send it again if you still need it."));
    return { canceled: controller !== undefined };
  },

  exit: () => ({}),
};

const deliveryKey = (request, message) => JSON.stringify([request.client, request.queue, message.item, message.receipt]);

function problemOf(error) {
  if (typeof error?.code !== "string" || typeof error.nextStep !== "string") {
    process.stderr.write(`${error?.stack ?? error}\n`);
    return { code: "DRIVER", message: String(error?.message ?? error), next_step: "Read the driver's log.", retryable: false };
  }
  const { code, message, nextStep, isRetryable, holder, state, reason, field, requestId } = error;
  return { code, message, next_step: nextStep, retryable: isRetryable, ...given({ holder, state, reason, field, request_id: requestId }) };
}

const reply = (id, result, then) => process.stdout.write(JSON.stringify({ id, ...result }) + "\n", then);

async function handle(request) {
  const { id, op } = request;
  const controller = new AbortController();
  running.set(id, controller);
  let result;
  try {
    if (!Object.hasOwn(ops, op)) throw new DriverError("UNSUPPORTED_OP", `the driver does not have ${op}`);
    result = { ok: await ops[op](request, controller.signal) };
  } catch (error) {
    result = { error: problemOf(controller.signal.aborted ? controller.signal.reason : error) };
  }
  running.delete(id);
  reply(id, result, op === "exit" ? () => process.exit(0) : undefined);
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  if (line.trim() === "") return;
  let request;
  try {
    request = JSON.parse(line);
  } catch (error) {
    return reply(null, { error: problemOf(new DriverError("DRIVER", `the line is not JSON: ${error.message}`)) });
  }
  void handle(request);
});
lines.on("close", () => process.exit(0));
