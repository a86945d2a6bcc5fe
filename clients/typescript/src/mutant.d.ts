/**
 * Fault that tests must catch: `renewal_on_main_loop`, `no_token` or `deadline_from_reply`. The build replaces it by an empty text, so
 * that the published package contains none of them; scripts/build.mjs makes a second build for the tests.
 */
declare const __LEASEHOLD_MUTANT__: string;
