// The bodies of the API: wishes, grants, outcomes and next steps. Times are in milliseconds.
import { randomUUID } from "node:crypto";

// The fields of a body, whose form the coordinator checks, or has promised.
export type Json = Record<string, any>;

/** The reason why no response came. */
export type ErrorKind = "no_such_host" | "resolver" | "connect" | "tls" | "timeout" | "reset" | "cut_off" | "malformed";

/** The responses whose bodies the coordinator's rules read. */
export type SendBodies = "errors" | "all" | undefined;

/**
 * Tokens of the rate, 1 to 1,000; or an estimate for each unit, as in `{ requests: 1, tokens: 1000
 * }`.
 */
export type Cost = number | Record<string, number>;

/** The wishes for a permit beside its target. */
export interface Wanted {
  /** Further keys whose limits the request must keep. */
  also?: string[] | undefined;
  /** Whether the request was sent before. */
  retry?: boolean | undefined;
  /** Default: 1. `Permit.settle` corrects an estimate in units. */
  cost?: Cost | undefined;
  /** Bytes that the request will send. */
  bytes?: number | undefined;
  /** 0 to 9. Each step is worth ten seconds in the queue. */
  priority?: number | undefined;
  /** Milliseconds within which the request must start. Default: as long as the call waits. */
  maxWaitMs?: number | undefined;
  /** The number of consecutive departures, 1 to 1,024. Default: 1. */
  slots?: number | undefined;
  /**
   * The host's Crawl-delay for all workers: milliseconds from the end of a request to the next
   * start.
   */
  crawlDelayMs?: number | undefined;
  /** Milliseconds until that robots.txt is read again. Default and maximum: 24 hours. */
  crawlDelayFreshMs?: number | undefined;
  /** The method of the request, for the costs and keys in the coordinator's policy. */
  method?: string | undefined;
  /** Values for the names of keys in the coordinator's policy, such as `github/{token_name}`. */
  labels?: Record<string, string> | undefined;
}

/**
 * An acquire request. Repeated under its id, it keeps its place in the queue and is charged once.
 */
export interface Wish extends Wanted {
  readonly target: string;
  readonly id: string;
}

/** A URL, or a key such as `example.com` or `custom/account-7`; or either with what is wanted. */
export type Target = string | URL | (Wanted & { target: string | URL });

const CRAWL_DELAY_MAX_MS = 86_400_000;

export function freshId(): string {
  return randomUUID().replaceAll("-", "");
}

export function wishOf(target: Target, wanted: Wanted = {}): Wish {
  if (typeof target === "object" && "target" in target) {
    return { ...wanted, ...target, target: String(target.target), id: freshId() };
  }
  return { ...wanted, target: String(target), id: freshId() };
}

export function isUrl(target: string): boolean {
  return target.includes("://");
}

/** Returns the URL without user, query and fragment, since keys do not need them. */
function withoutSecrets(url: string): string {
  const [, scheme, authority, path] = /^([^:]*:\/\/)([^/?#]*)([^?#]*)/.exec(url) ?? [];
  return authority === undefined ? url : `${scheme}${authority.slice(authority.lastIndexOf("@") + 1)}${path}`;
}

/** Returns the hash that names a URL in reports (64-bit FNV-1a), since its query may be secret. */
function resourceOf(url: string): string {
  let sum = 0xcbf29ce484222325n;
  for (const byte of Buffer.from(url.split("#")[0] ?? "")) {
    sum = BigInt.asUintN(64, (sum ^ BigInt(byte)) * 0x100000001b3n);
  }
  return sum.toString(16).padStart(16, "0");
}

/** Returns whole milliseconds, rounded up so that no call is early. */
export function wholeMs(ms: number): number {
  return Math.max(0, Math.ceil(ms));
}

/** Returns the item of the API, without default values. */
export function itemOf(wish: Wish): Json {
  const item: Json = { id: wish.id };
  if (isUrl(wish.target)) item.url = withoutSecrets(wish.target);
  else item.key = wish.target;
  if (wish.also?.length) item.also = wish.also;
  if ((wish.method ?? "GET") !== "GET") item.method = wish.method;
  if (wish.labels && Object.keys(wish.labels).length) item.labels = wish.labels;
  if (wish.retry) item.kind = "retry";
  if ((wish.cost ?? 1) !== 1) item.cost = wish.cost;
  if (wish.bytes) item.bytes = wish.bytes;
  if (wish.priority) item.priority = wish.priority;
  if (wish.maxWaitMs !== undefined) item.max_wait_ms = wholeMs(wish.maxWaitMs);
  if ((wish.slots ?? 1) !== 1) item.slots = wish.slots;
  if (wish.crawlDelayMs) {
    item.crawl_delay_ms = wholeMs(Math.min(wish.crawlDelayMs, CRAWL_DELAY_MAX_MS));
    if (wish.crawlDelayFreshMs !== undefined) item.crawl_delay_fresh_ms = wholeMs(wish.crawlDelayFreshMs);
  }
  return item;
}

/** Leave to send. Times are those of the clock that was read when the answer came. */
export interface Grant {
  wish: Wish;
  permit: string;
  key: string;
  startMs: number;
  validForMs: number;
  leaseMs: number;
  slots: number;
  intervalMs: number;
  sendBodies: SendBodies;
  /** The item of a request that leaves on the worker's share. Its report names it. */
  sent?: Json;
}

export function grantOf(wish: Wish, answer: Json, cameMs: number): Grant {
  return {
    wish,
    permit: answer.permit,
    key: answer.key,
    startMs: cameMs + answer.start_in_ms,
    validForMs: answer.valid_for_ms,
    leaseMs: answer.lease_ms,
    slots: answer.slots,
    intervalMs: answer.interval_ms,
    sendBodies: answer.send_bodies,
  };
}

/** The outcome of one request: a `status`, or an `error` if there was none. */
export interface Outcome {
  status?: number | undefined;
  error?: ErrorKind | undefined;
  headers?: Record<string, string> | undefined;
  /**
   * The beginning of the body, if the status may be that of a block page, or if a rule reads it.
   */
  bodyStart?: string | undefined;
  /**
   * Milliseconds from sending to the response's head. Default: the time since the permit's start.
   */
  latencyMs?: number | undefined;
  bytes?: number | undefined;
  /** The amounts of units that the request used, such as tokens. They replace the estimates. */
  used?: Record<string, number> | undefined;
  /** Whether the body is still coming. The slot stays taken until the next report without this. */
  bodyComing?: boolean | undefined;
  /** The method of the request. Only a method that is safe to repeat is retried. */
  method?: string | undefined;
  /** The number of attempts at the request, this one included. */
  attempt?: number | undefined;
  /** The number of earlier attempts that did not count: the host refused them, or was down. */
  free?: number | undefined;
  /** The URL that was requested, so that its failures do not slow others. Default: the permit's. */
  resource?: string | undefined;
}

export function reportOf(outcome: Outcome, permit: string, slot: number, latencyMs: number): Json {
  const item: Json = { permit, latency_ms: Math.round(latencyMs * 1000) / 1000 };
  if (slot) item.slot = slot;
  if (outcome.status !== undefined) item.status = outcome.status;
  if (outcome.error !== undefined) item.error = outcome.error;
  if (outcome.bodyStart !== undefined) item.body_start = outcome.bodyStart;
  if (outcome.headers && Object.keys(outcome.headers).length) item.headers = outcome.headers;
  if (outcome.bytes) item.bytes = outcome.bytes;
  if (outcome.used && Object.keys(outcome.used).length) item.used = outcome.used;
  if (outcome.bodyComing) item.body_coming = true;
  if ((outcome.method ?? "GET") !== "GET") item.method = outcome.method;
  if ((outcome.attempt ?? 1) !== 1) item.attempt = outcome.attempt;
  if (outcome.free) item.free = outcome.free;
  if (outcome.resource !== undefined) item.resource = resourceOf(outcome.resource);
  return item;
}

/** The next step for a request, and the state of its key. */
export interface Next {
  what: "done" | "retry" | "give_up";
  /** `retry`: milliseconds to wait before a new permit is acquired. */
  afterMs: number;
  /** `retry`: whether the attempt does not count, because the host refused it or is down. */
  free: boolean;
  /** `give_up`: the reason why a retry is useless. */
  reason: string;
  /** Whether the permit was unknown, over or reported before. Nothing was learned then. */
  late: boolean;
  /** The key's requests per second from now on. */
  rate: number;
  /**
   * Milliseconds in which nothing leaves for the key. New permits wait for its end by themselves.
   */
  holdMs: number;
  /** Whether the failure counts against its URL alone. Other URLs of the key are not slowed. */
  urlFault: boolean;
  /** Milliseconds for which a redirect asked to wait before its target is requested. */
  targetAfterMs: number;
}

export function nextOf(answer: Json): Next {
  const { retry, give_up: giveUp } = Object(answer.next) as Json;
  return {
    what: retry ? "retry" : giveUp ? "give_up" : "done",
    afterMs: retry?.after_ms ?? 0,
    free: retry?.free ?? false,
    reason: giveUp?.reason ?? "",
    late: answer.late ?? false,
    rate: answer.rate ?? 0,
    holdMs: answer.hold_ms ?? 0,
    urlFault: answer.url_fault ?? false,
    targetAfterMs: answer.target_after_ms ?? 0,
  };
}
