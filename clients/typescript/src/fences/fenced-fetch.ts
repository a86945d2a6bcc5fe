// HTTP requests that present the token of a lease, for services behind an HTTP fence.

import { errorFromProblem, type ProblemFields } from "../errors.js";
import { CLAIM_PATH, presentedToken, type TokenSource } from "./presented-token.js";

/** The type of `fetch`. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

/**
 * A `fetch` that sends the header `Lease-Token`. A refusal of a fence rejects with its error, for example StaleTokenError; every other
 * response is returned.
 *
 * The request is sent whatever the local state of the lease is: the fence decides. Pass `lease.signal` as `signal` to stop it with the
 * lease.
 */
export function fencedFetch(lease: TokenSource, fetchFunction: Fetch = fetch): Fetch {
  return async (input, init = {}) => {
    const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
    const token = presentedToken(lease);
    if (token !== "") headers.set("Lease-Token", token);
    const response = await fetchFunction(input, { ...init, headers });
    if (response.ok || !response.headers.get("content-type")?.startsWith("application/problem+json")) return response;
    const problem = (await response.clone().json().catch(() => ({}))) as ProblemFields;
    if (problem.type?.startsWith("urn:leasehold:error:") !== true) return response;
    // The connection is free again only when no one may read the body any more.
    void response.body?.cancel().catch(() => undefined);
    throw errorFromProblem({ ...problem, status: response.status });
  };
}

/**
 * Claims the fence of an HTTP service, before anything is read. `base` is the address of the fence, with the path below which the
 * middleware is mounted.
 */
export async function claimHttp(lease: TokenSource, base: string | URL, fetchFunction: Fetch = fetch): Promise<void> {
  const url = new URL(base);
  url.pathname = url.pathname.replace(/\/*$/, CLAIM_PATH);
  const response = await fencedFetch(lease, fetchFunction)(url, { method: "POST" });
  if (!response.ok) throw errorFromProblem({ status: response.status });
  await response.arrayBuffer();
}
