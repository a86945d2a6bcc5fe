// Faults that tests must catch. The build replaces `__LEASEHOLD_MUTANT__` by an empty text, so that the published package contains
// none of them; scripts/build.mjs makes a second build for the tests.

declare const __LEASEHOLD_MUTANT__: string;

/** Names of the faults. */
export type Mutant = "renewal_on_main_loop" | "no_token" | "deadline_from_reply";

/** Whether the client has this fault on purpose. */
export function isBroken(mutant: Mutant): boolean {
  return __LEASEHOLD_MUTANT__ === mutant;
}
