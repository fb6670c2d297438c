// Locks on keys. Each lock has a session of its own, which is renewed in the background and ends
// with it. If the process dies, the lock ends with the session's time-out.
import { PAUSE_MIN_MS, POLL_MAX_MS } from "./asked.js";
import { BadCall, LockLost, PolitelyError, TimedOut } from "./errors.js";
import { UNDO_TAKES_MAX_MS, type Talk } from "./talk.js";
import { freshId, wholeMs, type Json } from "./wire.js";

/** Status of the coordinator's answer to a session that has ended. */
const GONE = 410;

export interface LockOptions {
  /** The most holders of the key at once. Default: 1. */
  max?: number | undefined;
  /** Whether no other session may hold the key, whatever its `max`. */
  exclusive?: boolean | undefined;
  /** Milliseconds after which the lock ends if the process dies. Default: 30,000. */
  ttlMs?: number | undefined;
  /** The longest time in milliseconds to wait for the lock. Default: the client's `patienceMs`. */
  waitMs?: number | undefined;
  /** Gives up the wait, and leaves the queue. */
  signal?: AbortSignal | undefined;
}

/** A lock on a key that is held until it is released or lost. */
export class Lock {
  #lost = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #untilMs = 0;

  private constructor(
    private readonly talk: Talk,
    /** The key that is locked. */
    readonly key: string,
    private readonly session: string,
    /** The fencing number. Pass it to the resource, so that it can refuse an older one. */
    readonly fencing: number,
    private readonly ttlMs: number,
  ) {}

  /** Fires with `LockLost` when the lock has ended, so that the work on the key must stop. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Whether another session may hold the lock by now. */
  get isLost(): boolean {
    return this.signal.aborted || this.talk.io.now() >= this.#untilMs;
  }

  /** Returns the lock, as soon as the key has room for one holder more. */
  static async acquire(talk: Talk, key: string, options: LockOptions): Promise<Lock> {
    const { ttlMs = 30_000, signal } = options;
    const deadlineMs = talk.deadline(options.waitMs);
    const opening = { client: talk.client, ttl_ms: wholeMs(ttlMs) };
    let session = "";
    try {
      for (;;) {
        const askedMs = talk.io.now();
        ({ session } = await talk.ask("sessions", () => opening, { deadlineMs, signal }));
        try {
          return await Lock.#claim(talk, key, session, options, ttlMs, deadlineMs, askedMs);
        } catch (why) {
          // The session ended, because the coordinator was unavailable for longer than it.
          const isGone = why instanceof BadCall && why.status === GONE;
          if (!isGone || talk.io.now() >= deadlineMs) throw why;
        }
      }
    } catch (error) {
      if (session) talk.background(close(talk, session, talk.io.now() + UNDO_TAKES_MAX_MS));
      throw error;
    }
  }

  static async #claim(
    talk: Talk, key: string, session: string, { max = 1, exclusive, signal }: LockOptions, ttlMs: number,
    deadlineMs: number, askedMs: number,
  ): Promise<Lock> {
    const claim: Json = { session, key, max, id: freshId(), ...(exclusive ? { mode: "exclusive" } : {}) };
    const body = (): Json => {
      askedMs = talk.io.now();
      return { ...claim, wait_ms: wholeMs(Math.min(POLL_MAX_MS, Math.max(0, deadlineMs - askedMs))) };
    };
    for (;;) {
      const answer = await talk.ask("locks", body, { deadlineMs, signal });
      if (answer.status === "held") {
        const lock = new Lock(talk, key, session, answer.fencing, ttlMs);
        // The session counts from the time of the call, because the answer may have taken long.
        lock.#untilMs = askedMs + answer.ttl_ms;
        if (talk.io.now() - askedMs > ttlMs / 3) await lock.#renew(deadlineMs);
        lock.#keep();
        return lock;
      }
      const pauseMs = Math.max(answer.retry_in_ms, PAUSE_MIN_MS);
      if (talk.io.now() + pauseMs > deadlineMs) throw new TimedOut(`${key} is locked`, pauseMs, answer.position);
      await talk.io.sleep(pauseMs, signal);
    }
  }

  async #renew(deadlineMs: number): Promise<void> {
    const askedMs = this.talk.io.now();
    const path = `sessions/${encodeURIComponent(this.session)}`;
    const answer = await this.talk.ask(path, () => ({}), { deadlineMs, method: "PUT" }).catch((why: unknown) => {
      if (!(why instanceof BadCall) || why.status !== GONE) throw why;
      throw this.#end("the session has ended");
    });
    if (!answer.locks.some((held: Json) => held.fencing === this.fencing)) {
      throw this.#end(`the lock ${this.fencing} has ended`);
    }
    this.#untilMs = askedMs + this.ttlMs;
  }

  #keep(): void {
    this.#timer = setTimeout(() => void this.#keepOn(), this.ttlMs / 3).unref();
  }

  async #keepOn(): Promise<void> {
    const timer = this.#timer;
    try {
      await this.#renew(this.#untilMs);
      if (this.#timer === timer) this.#keep();
    } catch (why) {
      if (!(why instanceof PolitelyError)) throw why;
      if (this.#timer !== timer) return;
      this.talk.io.log(why.message);
      const leftMs = Math.max(0, this.#untilMs - this.talk.io.now());
      if (!this.signal.aborted) this.#timer = setTimeout(() => this.#end("the lock was not renewed"), leftMs).unref();
    }
  }

  #end(why: string): LockLost {
    const lost = new LockLost(`${this.key}: ${why}`);
    this.#lost.abort(lost);
    return lost;
  }

  /** Ends the lock. Throws `LockLost` if it had ended before, while the work on the key went on. */
  async release(): Promise<void> {
    const { isLost } = this;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.signal.aborted) await close(this.talk, this.session, this.#untilMs);
    if (isLost) throw new LockLost(`${this.key}: the lock ended before the work on it`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

async function close(talk: Talk, session: string, deadlineMs: number): Promise<void> {
  const path = `sessions/${encodeURIComponent(session)}`;
  await talk.ask(path, () => ({}), { deadlineMs, method: "DELETE" }).catch((why: unknown) => {
    if (!(why instanceof PolitelyError)) throw why; // the session times out
  });
}
