import type { Attempts } from "./attempts.js";
import { LeaseLost, PolitelyError, TooLate } from "./errors.js";
import { errorKind, headersThatMatter } from "./evidence.js";
import { PermitState } from "./state.js";
import type { Talk } from "./talk.js";
import { nextOf, type Next, type Outcome, type SendBodies } from "./wire.js";

/**
 * Leave for one request to start now and to last until its lease ends. `await using` gives a permit
 * back that was not reported.
 */
export class Permit {
  /** The attempts at the permit's request, if they are counted. */
  attempts: Attempts | undefined;
  #timer: NodeJS.Timeout | undefined;
  #kept = new AbortController();

  constructor(
    private readonly talk: Talk,
    readonly state: PermitState,
  ) {}

  /** The key whose limits the permit keeps. */
  get key(): string {
    return this.state.key;
  }

  /** The URL or key for which the permit was acquired. */
  get target(): string {
    return this.state.grant.wish.target;
  }

  /** The number of departures granted; see `departures`. */
  get slots(): number {
    return this.state.grant.slots;
  }

  /** The responses whose bodies a rule of the coordinator reads: report their `bodyStart`. */
  get sendBodies(): SendBodies {
    return this.state.grant.sendBodies;
  }

  /** Whether the permit was reported or given back. */
  get isOver(): boolean {
    return this.state.isOver;
  }

  /** Whether the lease has ended, so that the request must be aborted. */
  get isLost(): boolean {
    return this.state.isLost(this.talk.io.now());
  }

  /** Milliseconds until the request must have ended: a good time-out. */
  get leaseLeftMs(): number {
    return this.isLost ? 0 : this.state.leaseUntilMs - this.talk.io.now();
  }

  /** Fires with `LeaseLost` if `keep` cannot renew the lease. */
  get signal(): AbortSignal {
    return this.#kept.signal;
  }

  /**
   * Sets the amounts of units that the request used, as `{ tokens: 340 }`. The report sends them.
   * Without this the estimates of `cost` count. Throws a `RangeError` for anything but amounts.
   */
  settle(used: Record<string, number>): void {
    this.state.settle(used);
  }

  /** Waits for the start, which `acquireAny` does not. Throws `TooLate` if it has passed. */
  async begin(signal?: AbortSignal): Promise<void> {
    const begun = await this.talk.begin(this.state, signal);
    if (!begun) throw new TooLate(`${this.key}: the permit was not used in time`);
  }

  /**
   * Reports a `Response` of fetch, or an outcome, and returns the next step. `more` has further
   * fields. Throws `Unavailable`, `BadCall`.
   */
  async report(told: Response | Outcome, more: Outcome = {}): Promise<Next> {
    const outcome = isResponse(told)
      ? { status: told.status, headers: headersThatMatter(told.headers, this.sendBodies) }
      : told;
    const whole = { ...this.attempts?.fields(), ...outcome, ...more };
    const [next] = await this.talk.report([[this.state, whole]]);
    if (!whole.bodyComing) {
      this.letGo();
      this.attempts?.heard(next as Next);
    }
    return next as Next;
  }

  /**
   * Reports an error of the request as evidence about the host. An error that says nothing about
   * the host gives the permit back as sent.
   */
  async failed(error: unknown, more: Outcome = {}): Promise<Next> {
    const kind = errorKind(error);
    if (kind) return this.report({ error: kind }, more);
    if (this.slots === 1) await this.cancel({ sent: true });
    return { ...nextOf({ next: { give_up: { reason: String(error) } } }) };
  }

  /**
   * Extends the lease. Throws `LeaseLost` if it has ended, and the request must then be aborted.
   */
  async renew(): Promise<void> {
    await this.talk.renewOne(this.state);
  }

  /** Gives the permit back. `sent` means that the request may have left. */
  async cancel({ sent = false } = {}): Promise<void> {
    this.letGo();
    await this.talk.cancel([this.state], sent);
  }

  /** Renews the lease in the background until the permit is over, and returns `signal`. */
  keep(): AbortSignal {
    this.letGo();
    const inMs = Math.max(0, this.leaseLeftMs - this.state.grant.leaseMs / 2);
    this.#timer = setTimeout(() => void this.#keepOn(), inMs).unref();
    return this.signal;
  }

  async #keepOn(): Promise<void> {
    try {
      if (!this.isOver) await this.renew();
      if (!this.isOver) this.keep();
    } catch (why) {
      if (!(why instanceof PolitelyError)) throw why;
      this.talk.io.log(`${this.key}: ${why.message}`);
      this.#timer = setTimeout(() => this.#lose(), this.leaseLeftMs).unref();
    }
  }

  #lose(): void {
    if (this.isOver) return;
    this.state.hasEnded = true;
    this.#kept.abort(new LeaseLost(`${this.key}: the lease is over; the request was aborted`));
  }

  /**
   * Ends `keep`. The permit itself may continue.
   * @internal
   */
  letGo(): void {
    clearTimeout(this.#timer);
  }

  /** Yields each departure at its time, as a permit with a report of its own. */
  async *departures(signal?: AbortSignal): AsyncGenerator<Permit, void, undefined> {
    for (let slot = 0; slot < this.slots; slot += 1) {
      const departure = new Permit(this.talk, new PermitState(this.state.grant, slot));
      await departure.begin(signal);
      yield departure;
    }
  }

  /**
   * Gives the permit back if it was not reported. The other departures of several may be under way.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.letGo();
    if (!this.isOver && this.slots === 1) await this.cancel();
  }
}

/** Returns whether this is a response of some fetch, such as that of a package. */
function isResponse(told: Response | Outcome): told is Response {
  return typeof told.headers?.entries === "function";
}
