// What the program's thread and the renewal thread send each other.

import type { ClockShare } from "../boot-clock.js";
import type { Credentials } from "../http-connection.js";
import type { ServerAddress } from "../server-address.js";

/** Start values of the renewal thread. */
export interface RenewalInit {
  readonly servers: readonly ServerAddress[];
  readonly credentials: Credentials;
  readonly clock: ClockShare;
  /** Shared memory of a RequestCounter. */
  readonly requests: SharedArrayBuffer;
  /** Fault that tests build in; empty in the published package. */
  readonly mutant: string;
}

/** The session that carries the leases. */
export interface SessionSpec {
  readonly id: string;
  readonly secret: string | undefined;
  readonly ttlMs: number;
  /** When the request that opened or renewed it was sent. */
  readonly sent: number;
  readonly page: SharedArrayBuffer;
}

/** A lease to keep. */
export interface LeaseSpec {
  readonly kind: "lease";
  readonly resource: string;
  readonly lease: string;
  readonly token: string;
  readonly tokenNumber: string;
  readonly secret: string | undefined;
  /** Longest time from one renewal to the next, if the session's renewals are not enough. */
  readonly spanMs: number | undefined;
  /** Its ttl: no reply extends it further. */
  readonly ttlMs: number;
  /** Without word from the server, the holder stops after this time: the drain period, if it is shorter than the ttl. */
  readonly silenceMs: number | undefined;
  /** Whether each renewal raises the token. Such a renewal is repeated under one idempotency key. */
  readonly rotates: boolean;
  /** Whether the predecessor of an overlap handoff still drains. */
  readonly overlaps: boolean;
  readonly sent: number;
}

/** A received message to keep invisible to others. */
export interface DeliverySpec {
  readonly kind: "delivery";
  readonly queue: string;
  readonly item: string;
  readonly receipt: string;
  readonly secret: string | undefined;
  readonly spanMs: number;
  readonly sent: number;
}

export type HoldSpec = LeaseSpec | DeliverySpec;

/** To the renewal thread. */
export type Instruction =
  | { readonly type: "page"; readonly number: number; readonly page: SharedArrayBuffer }
  | { readonly type: "session"; readonly session: SessionSpec }
  | { readonly type: "session_over"; readonly session: string }
  | { readonly type: "compare"; readonly session: string }
  | { readonly type: "hold"; readonly slot: number; readonly session: string; readonly spec: HoldSpec }
  | { readonly type: "drop"; readonly slot: number }
  | { readonly type: "ask"; readonly slot: number }
  | { readonly type: "token"; readonly slot: number; readonly token: string; readonly tokenNumber: string; readonly secret: string | undefined }
  | { readonly type: "span"; readonly slot: number; readonly spanMs: number }
  | { readonly type: "clock_moved" }
  | { readonly type: "close" };

/** From the renewal thread. */
export type Notice =
  | { readonly type: "changed"; readonly slots: readonly number[] | "all" }
  | { readonly type: "lost"; readonly slot: number; readonly state: string; readonly reason: string | undefined }
  | { readonly type: "dropped"; readonly slot: number }
  | { readonly type: "drained"; readonly slot: number }
  | { readonly type: "token"; readonly slot: number; readonly token: string; readonly tokenNumber: string; readonly secret: string | undefined }
  | { readonly type: "session_ended"; readonly session: string }
  | { readonly type: "ready"; readonly queue: string };
