import { hostname } from "node:os";

import { Attempts } from "./attempts.js";
import { PolitelyError } from "./errors.js";
import { Lock, type LockOptions } from "./lock.js";
import { Permit } from "./permit.js";
import { Places } from "./places.js";
import { Share, type OnUnavailable } from "./share.js";
import { Talk, type Io } from "./talk.js";
import { HttpIo } from "./transport.js";
import { wishOf, type Json, type Next, type Outcome, type Target, type Wanted } from "./wire.js";

export interface ClientOptions {
  /**
   * The coordinator, such as `http://127.0.0.1:7077`; without a scheme, `http://` is assumed.
   * Several that share their keys are a list, or are separated by commas: if one does not answer or
   * is closing, the next one is called. Default: `POLITELY_COORDINATOR`, or the user's own
   * coordinator on this machine, which is started if it does not run.
   */
  url?: string | readonly string[] | undefined;
  /** The worker's name at the coordinator. Default: the host and the process id. */
  client?: string | undefined;
  /** The coordinator's token. Default: `POLITELY_TOKEN`. */
  token?: string | undefined;
  /** The longest wait of calls without a `waitMs`, in milliseconds. Default: no limit. */
  patienceMs?: number | undefined;
  /**
   * The behaviour while no coordinator answers. `wait`, the default: nothing leaves. `share`: this
   * worker goes on with its share of each key's limit, if the coordinator allows it; reports are
   * kept and sent later. `stop`: calls fail with `Unavailable` at once.
   */
  onUnavailable?: OnUnavailable | undefined;
  /**
   * Whether the user's own coordinator may be used. Its program is `POLITELY_PROGRAM`, or `politely`
   * on the path. Default: true.
   */
  local?: boolean | undefined;
  /** Takes lines about the coordinator. Default: `console.warn`. */
  log?: ((line: string) => void) | undefined;
  /** Sends the calls; for tests. */
  io?: Io | undefined;
}

/** The bounds of a wait for a permit. */
export interface Waiting {
  /**
   * Milliseconds, also while the coordinator is unavailable. Default: the client's `patienceMs`.
   */
  waitMs?: number | undefined;
  /**
   * Gives up the wait: the call leaves the queue, and a permit that was just granted is given back.
   */
  signal?: AbortSignal | undefined;
}

/** Limits of a key, as an operator sets them. Absent ones stay, and null removes one. */
export interface Limits {
  /** Requests per second, an upper bound on a key that learns. */
  rate?: number | null;
  /** The number of requests that may leave at once. */
  burst?: number | null;
  inFlight?: number | null;
  /** Further limits that all hold, such as `["10/s", "1000/day@UTC", "100 concurrent"]`. */
  limits?: string[] | null;
  /** `fixed` makes these numbers the limits themselves. */
  law?: string | null;
  /** False freezes the learned state. */
  learn?: boolean | null;
}

/** Acquires a permit from `politely serve` before each request, and reports the outcome. */
export class Client {
  readonly #io: Io;
  readonly #talk: Talk;
  readonly #patienceMs: number | undefined;

  /** Throws a `TypeError` if a setting is invalid, or no coordinator is named. Nothing is sent before the first call. */
  constructor(options: ClientOptions = {}) {
    const { onUnavailable = "wait", log = (line) => console.warn(`politely: ${line}`) } = options;
    if (!["wait", "share", "stop"].includes(onUnavailable)) {
      throw new TypeError(`onUnavailable is "wait", "share" or "stop", not "${onUnavailable}"`);
    }
    const places = new Places(options.url, options.local ?? true);
    this.#io = options.io ?? new HttpIo(places, log, options.token);
    this.#patienceMs = options.patienceMs;
    const name = options.client ?? `${hostname()}-${process.pid}`.slice(0, 128);
    this.#talk = new Talk(name, this.#io, new Share(onUnavailable, places.count));
  }

  /** The client's name at the coordinator. */
  get client(): string {
    return this.#talk.client;
  }

  /**
   * Waits in the key's queue and returns a permit when the request may leave. Throws `Refused`,
   * `TimedOut` (`Unavailable` if the coordinator is unavailable), `BadCall`, or the signal's
   * reason.
   */
  async acquire(target: Target, options: Wanted & Waiting = {}): Promise<Permit> {
    const { waitMs = this.#patienceMs, signal, ...wanted } = options;
    return new Permit(this.#talk, await this.#talk.acquire(wishOf(target, wanted), waitMs, signal));
  }

  /**
   * Runs `body` with a permit whose lease is renewed meanwhile; `permit.signal` fires if it is
   * lost. An error of the body is reported as evidence about the host. Without a report the permit
   * is given back.
   */
  async permit<T>(
    target: Target, body: (permit: Permit) => Promise<T>, options: Wanted & Waiting = {},
  ): Promise<T> {
    await using permit = await this.acquire(target, options);
    permit.keep();
    try {
      return await body(permit);
    } catch (error) {
      if (!permit.isOver) await permit.failed(error).catch((why: unknown) => this.notReported(permit, why));
      throw error;
    }
  }

  /**
   * Returns the first available permits for up to 4,096 targets, soonest first: at least one and at
   * most `n`. Nothing is taken of the others. Each may start a little later; see `Permit.begin`.
   */
  async acquireAny(targets: Iterable<Target>, n = 1, options: Waiting = {}): Promise<Permit[]> {
    const { waitMs = this.#patienceMs, signal } = options;
    const wishes = [...targets].map((target) => wishOf(target));
    const states = await this.#talk.acquireAny(wishes, n, waitMs, signal);
    return states.map((state) => new Permit(this.#talk, state));
  }

  /**
   * Yields a permit per attempt, until a report ends the request. An attempt whose permit was not
   * reported (`Permit.report`, `Permit.failed`) is the last.
   */
  async *attempts(target: Target, options: Wanted & Waiting = {}): AsyncGenerator<Permit, void, undefined> {
    const attempts = new Attempts(options.method);
    for (;;) {
      const permit = await this.acquire(target, { ...options, retry: attempts.number > 1 });
      permit.attempts = attempts;
      try {
        yield permit;
      } finally {
        if (!permit.isOver) await permit.cancel({ sent: true });
      }
      const pauseMs = attempts.pauseMs();
      if (pauseMs === undefined) return;
      await this.sleep(pauseMs, options.signal);
    }
  }

  /** Reports, and acquires permits in the same round trip: for all targets, or as `acquireAny`. */
  async exchange(
    told: Iterable<[Permit, Outcome]>, targets: Iterable<Target>, n = 0, options: Waiting = {},
  ): Promise<[Next[], Permit[]]> {
    const { waitMs = this.#patienceMs, signal } = options;
    const wishes = [...targets].map((target) => wishOf(target));
    const [nexts, states] = await this.#talk.exchange(pairsOf(told), wishes, n, waitMs, signal);
    return [nexts, states.map((state) => new Permit(this.#talk, state))];
  }

  /** Reports the outcomes of several requests in one call. */
  async report(told: Iterable<[Permit, Outcome]>): Promise<Next[]> {
    return this.#talk.report(pairsOf(told));
  }

  /** Extends leases. Abort the request of a permit that is `isLost` afterwards. */
  async renew(permits: Iterable<Permit>): Promise<void> {
    await this.#talk.renew([...permits].map(({ state }) => state));
  }

  /**
   * Gives permits back. `sent` means that the requests may have left, so their tokens stay spent.
   */
  async cancel(permits: Iterable<Permit>, { sent = false } = {}): Promise<void> {
    await this.#talk.cancel([...permits].map(({ state }) => state), sent);
  }

  /**
   * Returns the lock on a key, as soon as at most `max` sessions hold it. Waiting ones are served
   * in order. Throws `TimedOut`, `BadCall`, or the signal's reason.
   */
  async lock(key: string, options: LockOptions = {}): Promise<Lock> {
    return Lock.acquire(this.#talk, key, { waitMs: this.#patienceMs, ...options });
  }

  /** Sets limits of one key, as an operator does. Throws `Unavailable`, `BadCall`. */
  async setLimits(key: string, { inFlight, ...limits }: Limits): Promise<void> {
    const body: Json = inFlight === undefined ? limits : { ...limits, in_flight: inFlight };
    await this.#talk.setLimits(key, body);
  }

  /**
   * Sleeps, unless the signal fires.
   * @internal
   */
  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (ms > 0) await this.#io.sleep(ms, signal);
  }

  /**
   * Logs one line, as `ClientOptions.log`.
   * @internal
   */
  log(line: string): void {
    this.#io.log(line);
  }

  /**
   * Logs why a permit was not reported, where an answer of the host must not be lost for that.
   * @internal
   */
  notReported(permit: Permit, why: unknown): void {
    if (!(why instanceof PolitelyError)) throw why;
    this.log(`${permit.key}: not reported: ${why.message}`);
  }

  /**
   * Lets `close` wait for a call whose caller has gone.
   * @internal
   */
  carry(call: Promise<unknown>): void {
    this.#talk.background(call);
  }

  /** Closes the connections after the calls under way. Unreported permits end with their leases. */
  async close(): Promise<void> {
    while (this.#talk.underWay.size) await Promise.all(this.#talk.underWay);
    if (this.#talk.share.later.length) await this.#talk.flush();
    if (this.#io instanceof HttpIo) this.#io.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function pairsOf(told: Iterable<[Permit, Outcome]>): [Permit["state"], Outcome][] {
  return [...told].map(([permit, outcome]) => [permit.state, { ...permit.attempts?.fields(), ...outcome }]);
}
