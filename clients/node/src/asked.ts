import { BadCall, Refused, TimedOut } from "./errors.js";
import type { Talk } from "./talk.js";
import { freshId, grantOf, itemOf, wholeMs, type Grant, type Json, type Wish } from "./wire.js";

/**
 * Maximum time for which a call is held open. A place in the queue is kept for a minute, and
 * proxies close connections that are silent for long.
 */
export const POLL_MAX_MS = 30_000;
/** Minimum time between two calls, independent of the answer. */
export const PAUSE_MIN_MS = 10;
/** A pause after the refusal by a coordinator that is closing. */
const CLOSING_PAUSE_MS = 1_000;

/** Code of refusals by a coordinator that is closing. */
export const CLOSING = "closing";
/** Code of the refusal of a wish whose answer was lost until its permit had ended. */
const ID_USED = "id_used";

/** Wishes that are not granted yet. */
export class Asked {
  open: Wish[];
  readonly grants: Grant[] = [];
  timedOut = new TimedOut("no answer");
  #sentMs = 0;

  constructor(
    private readonly talk: Talk,
    wishes: Wish[],
    /** The number of permits that is enough, or 0 for all. */
    readonly n: number,
    readonly deadlineMs: number,
  ) {
    this.open = [...wishes];
  }

  /** Returns the fields of a call for the wishes, which also keeps the worker's share. */
  body(): Json {
    const { talk } = this;
    this.#sentMs = talk.io.now();
    const leftMs = Math.min(POLL_MAX_MS, Math.max(0, this.deadlineMs - this.#sentMs));
    return {
      client: talk.client,
      wait_ms: talk.share.isOn(this.#sentMs) ? 0 : wholeMs(leftMs),
      ...(this.n ? { want: { any: this.n } } : {}),
      ...talk.share.asked(),
    };
  }

  items(): Json[] {
    return this.open.map(itemOf);
  }

  /**
   * Serves a wish with a turn of the worker's share within so many milliseconds, if there is one.
   */
  async goOn(withinMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    if (!this.n && this.open.length > 1) return false;
    const { share, io } = this.talk;
    const taken = share.takeTurn(this.open, Math.min(withinMs, this.deadlineMs - io.now()), io.now());
    const wish = taken && this.open[taken.index];
    if (!wish) return false;
    if (taken.turnMs > io.now()) await io.sleep(taken.turnMs - io.now(), signal);
    if (!share.isOn(io.now())) return false; // a coordinator answers again
    this.grants.push(share.grant(wish, io.now()));
    return true;
  }

  /**
   * Returns the milliseconds until the next call, or undefined if no further call is needed. Grants
   * are stored before an error is thrown.
   */
  hear(answer: Json): number | undefined {
    const now = this.talk.io.now();
    this.talk.share.tell(answer.share, this.#sentMs, now);
    let pauseMs: number = answer.retry_in_ms ?? 0;
    const settled = new Set<Wish>();
    const anew = new Map<Wish, Wish>();
    const refused: Refused[] = [];
    const wrong: BadCall[] = [];
    let waiting = 0;
    for (const item of answer.items as Json[]) {
      const wish = this.open[item.item];
      if (!wish) continue;
      if (item.status === "granted") {
        const grant = grantOf(wish, item, now);
        settled.add(wish);
        this.grants.push(grant);
        this.talk.share.granted(grant, item.limit, now);
      } else if (item.status === "wait") {
        waiting += 1;
        this.timedOut = new TimedOut(item.reason, item.retry_in_ms, item.position);
        pauseMs = Math.max(pauseMs, item.retry_in_ms);
      } else if (item.status === "refused" && item.code === ID_USED) {
        waiting += 1;
        anew.set(wish, { ...wish, id: freshId() });
      } else if (item.status === "refused" && item.code === CLOSING) {
        waiting += 1;
        pauseMs = Math.max(pauseMs, CLOSING_PAUSE_MS);
      } else if (item.status === "refused") {
        settled.add(wish);
        refused.push(new Refused(item.code, item.reason, item.retry_in_ms ?? undefined));
      } else {
        wrong.push(new BadCall(item.error.detail, `${wish.target}: ${item.error.field}`));
      }
    }
    this.open = this.open.filter((wish) => !settled.has(wish)).map((wish) => anew.get(wish) ?? wish);
    if (wrong[0]) throw wrong[0];
    // With `n`, wishes without an answer may still be granted. Without it, every wish must be
    // granted.
    const isEnough = this.n ? this.grants.length || !this.open.length : refused.length || !waiting;
    if (isEnough && refused[0] && !this.grants.length) throw refused[0];
    // The reason of one wish does not describe the others.
    if (this.n) this.timedOut = new TimedOut("none of them may leave", pauseMs);
    return isEnough ? undefined : pauseMs;
  }
}

