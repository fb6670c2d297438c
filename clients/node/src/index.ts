export { Client, type ClientOptions, type Limits, type Waiting } from "./client.js";
export { BadCall, LeaseLost, LockLost, PolitelyError, Refused, TimedOut, TooLate, Unavailable } from "./errors.js";
export { fetch, politeFetch, type FetchOptions } from "./fetch.js";
export { Lock, type LockOptions } from "./lock.js";
export type { PacedOptions } from "./paced.js";
export { Permit } from "./permit.js";
export type { OnUnavailable } from "./share.js";
export * as usage from "./usage.js";
export type { Cost, ErrorKind, Next, Outcome, SendBodies, Target, Wanted } from "./wire.js";
