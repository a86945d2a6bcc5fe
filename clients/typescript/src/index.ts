// Client for Leasehold: acquire, renew and release leases with fencing tokens.

export { TestClock } from "./boot-clock.js";
export type { AcquireOptions, ResourceRequest } from "./acquire-options.js";
export { Client, type LeaseWork } from "./client.js";
export type { ClientOptions, TlsOptions } from "./client-options.js";
export type { Duration } from "./duration.js";
export {
  AccessError,
  BusyError,
  CanceledError,
  ConflictError,
  DeadlockError,
  InvalidArgumentError,
  InvalidTokenError,
  LeaseholdError,
  LeaseLostError,
  LeaseSuspendedError,
  LimitError,
  NotFoundError,
  OutcomeUnknownError,
  StaleTokenError,
  UnavailableError,
  WaitTimeoutError,
  type Code,
  type LostState,
  type ProblemFields,
} from "./errors.js";
export { claimHttp, fencedFetch, type Fetch } from "./fences/fenced-fetch.js";
export { HttpFence, type HttpFenceOptions } from "./fences/http-fence.js";
export { expressFence, fastifyFence, type NextFunction } from "./fences/http-middleware.js";
export { KnexFence, knexFence, type KnexInstance, type KnexLike } from "./fences/knex.js";
export { PostgresFence, postgresFence, type ClaimOptions, type PgPool, type PgQueryable } from "./fences/postgres.js";
export type { TokenSource } from "./fences/presented-token.js";
export { PrismaFence, prismaFence, type PrismaLike, type PrismaTransaction } from "./fences/prisma.js";
export { RedisFence, redisFence, type AppliedOnce, type RedisCaller, type RedisFenceOptions } from "./fences/redis.js";
export { postgresRefusal, redisRefusal } from "./fences/refusal.js";
export { Hold, type HoldEvents, type HoldState, type Loss } from "./local-validity.js";
export { Lease, type HandoffOptions } from "./lease.js";
export { Election, type ElectionOptions, type Leader } from "./recipes/election.js";
export {
  Message,
  MessageQueue,
  type DeadLetter,
  type QueueOptions,
  type QueueStatus,
  type ReceiveOptions,
  type SendOptions,
} from "./recipes/message-queue.js";
export { Discovery, ServiceRegistration, type Instance, type ServiceOptions } from "./recipes/service.js";
export type { StoredValue } from "./recipes/small-state.js";
export type * as api from "./generated/openapi.js";
