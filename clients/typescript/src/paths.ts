// Paths of the HTTP API.

/** A name in a path: its slashes stay, everything else is percent-encoded. */
export function encodeName(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

export const leasePath = (resource: string, verb: string): string => `/v1/leases/${encodeName(resource)}:${verb}`;
export const sessionPath = (session: string, verb: string): string => `/v1/sessions/${encodeURIComponent(session)}:${verb}`;
export const queuePath = (queue: string, verb: string): string => `/v1/queues/${encodeName(queue)}:${verb}`;
