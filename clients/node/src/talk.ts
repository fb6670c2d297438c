// The protocol of the coordinator's clients.
//
// A call without an answer is repeated under the same ids, after full jitter, until the caller's
// deadline. The coordinator answers a repeated id with the same permit and charges it once. Without
// an answer there is no permit, so nothing leaves while the coordinator is unavailable, unless the
// worker goes on with its share.
import { Asked, PAUSE_MIN_MS } from "./asked.js";
import { BadCall, LeaseLost, PolitelyError, Unavailable } from "./errors.js";
import type { Share } from "./share.js";
import { PermitState } from "./state.js";
import { freshId, isUrl, nextOf, reportOf, type Grant, type Json, type Next, type Outcome, type Wish } from "./wire.js";

/** Maximum time until a wish is repeated, so that it keeps its place in the queue. */
const ASK_AGAIN_MAX_MS = 45_000;
/** The time that a call may take beyond the time for which it is held open. */
const ANSWER_TAKES_MAX_MS = 10_000;
/** The time after the end of the caller's wait in which an answer still counts. */
const LATE_MAX_MS = 1_000;
/** The time between two warnings that the coordinator is unavailable. */
const WARN_EVERY_MS = 30_000;
/** The cap is low: a permit costs the coordinator little, and a sleeping worker fetches nothing. */
const BACKOFF_BASE_MS = 100, BACKOFF_CAP_MS = 1_000;
/** The time for which a report is repeated. */
const REPORT_WITHIN_MS = 30_000;
/** Maximum number of reports in one call, set by the coordinator. */
const REPORTS_MAX = 4_096;
/** Half of the coordinator's maximum, since the wishes of an exchange need room too. */
const REPORTS_BYTES_MAX = 2 << 20;
/** Maximum attempts at a request whose permit the coordinator does not know. */
const ALONE_MAX = 5;
/** The time in which a call that was given up returns the permits that it may have been granted. */
export const UNDO_TAKES_MAX_MS = 2_000;

const FOR_NOW = [408, 429, 500, 502, 503, 504];
const SAFE = ["GET", "HEAD", "OPTIONS", "TRACE"];
/** Statuses of a coordinator that answers and does not serve this client now. */
const BUSY = [425, 429, 503];
/** Statuses of a coordinator that is unavailable, or that does not serve this client now. */
export const AWAY = [408, 425, 429, 500, 502, 503, 504];
/** A field that every answer to a call has, by the path of the call. */
const ANSWER_FIELDS: Json = { acquire: "items", exchange: "acquire", report: "items" };

/** A call that sends `body` to `path` below `/api/v1`, and fails after `timeoutMs`. */
export interface Call {
  method: "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body: Json;
  timeoutMs: number;
}

/** An answer. `body` is undefined if it is no JSON. */
export interface Reply {
  status: number;
  body: any;
  retryAfterMs?: number | undefined;
  /** The URL of the API that was called. */
  url: string;
  /** Whether the body is a problem document, as in every error of a coordinator. */
  isProblem: boolean;
}

/** The address that was called, and the reason why no answer came. */
export interface NoReply {
  why: string;
}

/** The machine that the protocol runs on. `now` is a monotonic clock, and `chance` draws from 0 to 1. */
export interface Io {
  now(): number;
  chance(): number;
  /** Rejects with the signal's reason when it fires, as `send` does. */
  sleep(ms: number, signal: AbortSignal | undefined): Promise<void>;
  send(call: Call, signal: AbortSignal | undefined): Promise<Reply | NoReply>;
  /** Writes one line about the coordinator. */
  log(line: string): void;
}

export type Told = readonly (readonly [PermitState, Outcome])[];

/** The reports of one call, as values and as JSON. */
interface Batch {
  told: [PermitState, Outcome][];
  items: Json[];
}

interface Asking {
  deadlineMs: number;
  method?: Call["method"];
  asked?: Asked;
  signal?: AbortSignal | undefined;
}

/** The calls of one client. */
export class Talk {
  /** Calls that continue after their caller has gone. */
  readonly underWay = new Set<Promise<unknown>>();
  #awaySinceMs: number | undefined;
  #warnedMs = -Infinity;

  constructor(
    readonly client: string,
    readonly io: Io,
    readonly share: Share,
  ) {}

  /** Returns the end of a wait. Undefined means no limit. */
  deadline(waitMs: number | undefined): number {
    return waitMs === undefined ? Infinity : this.io.now() + waitMs;
  }

  /** Returns a permit whose request may leave now. */
  async acquire(wish: Wish, waitMs?: number, signal?: AbortSignal): Promise<PermitState> {
    const deadlineMs = this.deadline(waitMs);
    for (;;) {
      const [grant] = await this.grants([wish], 0, deadlineMs, signal);
      const permit = this.share.hold(new PermitState(grant as Grant));
      if (await this.begin(permit, signal)) return permit;
      wish = { ...wish, id: freshId() }; // the process was suspended past the start
    }
  }

  /**
   * Sleeps until the permit's start. Returns false and gives the permit back if its time has
   * passed. A permit of several departures is kept, since the others may be under way.
   */
  async begin(permit: PermitState, signal?: AbortSignal): Promise<boolean> {
    try {
      for (let early; (early = permit.startMs - this.io.now()) > 0; ) await this.io.sleep(early, signal);
      signal?.throwIfAborted();
    } catch (gone) {
      if (permit.grant.slots === 1) this.background(this.cancel([permit], false));
      throw gone;
    }
    if (permit.mayStart(this.io.now())) return true;
    if (permit.grant.slots === 1) await this.cancel([permit], false);
    return false;
  }

  /** Returns the first available permits, at least one and at most `n`, soonest first. */
  async acquireAny(wishes: Wish[], n: number, waitMs?: number, signal?: AbortSignal): Promise<PermitState[]> {
    return this.#held(await this.grants(wishes, n, this.deadline(waitMs), signal));
  }

  #held(grants: Grant[]): PermitState[] {
    const permits = grants.map((grant) => this.share.hold(new PermitState(grant)));
    return permits.sort((a, b) => a.startMs - b.startMs);
  }

  /** Reports, then acquires permits for all wishes, or for the first `n`. */
  async exchange(
    told: Told, wishes: Wish[], n: number, waitMs?: number, signal?: AbortSignal,
  ): Promise<[Next[], PermitState[]]> {
    const deadlineMs = this.deadline(waitMs);
    const batches = this.#batches(told);
    let last = batches.pop() ?? { told: [], items: [] };
    const heard = await this.#report(batches);
    if (this.share.onUnavailable === "share") {
      heard.push(...(await this.#report([last])));
      last = { told: [], items: [] };
    }
    const asked = new Asked(this, wishes, n, deadlineMs);
    const body = (): Json => ({ ...asked.body(), report: last.items, acquire: asked.items() });
    const until = Math.max(deadlineMs, this.io.now() + REPORT_WITHIN_MS);
    let nexts: Next[];
    try {
      const answer = await this.ask("exchange", body, { deadlineMs: until, asked, signal });
      if (answer === undefined) return [noneWrong(heard), this.#held(asked.grants)];
      heard.push(...this.#heard(last.told, answer.report));
      const pauseMs = asked.hear({ ...answer, items: answer.acquire });
      nexts = noneWrong(heard);
      if (wishes.length && pauseMs !== undefined) {
        await this.#rest(pauseMs, asked, signal);
        await this.#untilGranted(asked, signal);
      }
    } catch (error) {
      if (error instanceof PolitelyError) await this.#giveBack(asked);
      else this.background(this.#report([last]), this.#forget(wishes)); // a repeated report counts once
      throw error;
    }
    return [nexts, this.#held(asked.grants)];
  }

  /** Repeats the call under the same ids until all (`n` is 0) or some of the wishes are granted. */
  async grants(wishes: Wish[], n: number, deadlineMs: number, signal?: AbortSignal): Promise<Grant[]> {
    const asked = new Asked(this, wishes, n, deadlineMs);
    try {
      await this.#untilGranted(asked, signal);
    } catch (error) {
      if (error instanceof PolitelyError) await this.#giveBack(asked);
      else this.background(this.#forget(wishes));
      // A lost answer may hold permits.
      if (error instanceof Unavailable) await this.#forget(asked.open, 0);
      throw error;
    }
    return asked.grants;
  }

  async #untilGranted(asked: Asked, signal: AbortSignal | undefined): Promise<void> {
    const body = (): Json => ({ ...asked.body(), items: asked.items() });
    for (;;) {
      const answer = await this.ask("acquire", body, { deadlineMs: asked.deadlineMs, asked, signal });
      if (answer === undefined) return; // a turn of the share serves it
      const pauseMs = asked.hear(answer);
      await this.#reportLater();
      if (pauseMs === undefined) return;
      await this.#rest(pauseMs, asked, signal);
    }
  }

  async #rest(pauseMs: number, asked: Asked, signal: AbortSignal | undefined): Promise<void> {
    if (this.io.now() + pauseMs > asked.deadlineMs) throw asked.timedOut;
    await this.io.sleep(Math.min(Math.max(pauseMs, PAUSE_MIN_MS), ASK_AGAIN_MAX_MS), signal);
  }

  /**
   * Gives back the permits that came together with an error, since the caller sees only the error.
   */
  async #giveBack(asked: Asked): Promise<void> {
    await this.cancel(asked.grants.map((grant) => new PermitState(grant)), false);
  }

  /** Gives up wishes by their ids, so that permits in a lost answer are returned. */
  async #forget(wishes: Wish[], withinMs = UNDO_TAKES_MAX_MS): Promise<void> {
    if (!wishes.length) return;
    const body = { client: this.client, permits: wishes.map((wish) => wish.id) };
    await this.ask("cancel", () => body, { deadlineMs: this.io.now() + withinMs }).catch(onlyOurs);
  }

  /** Runs calls whose caller has gone. Nothing waits for them but the end of the client. */
  background(...calls: Promise<unknown>[]): void {
    for (const call of calls) {
      const carried: Promise<unknown> = call.catch(onlyOurs).finally(() => this.underWay.delete(carried));
      this.underWay.add(carried);
    }
  }

  /**
   * Reports outcomes and returns the next steps. A repeated report counts once. A wrong report
   * throws its error after all others are delivered.
   */
  async report(told: Told): Promise<Next[]> {
    const heard = await this.#report(this.#batches(told));
    await this.#reportLater();
    return noneWrong(heard);
  }

  /** Reports what was kept while no coordinator answered, once one answers. */
  async #reportLater(): Promise<void> {
    while (this.share.later.length && !this.share.isAway) {
      const items = this.share.later.splice(0, REPORTS_MAX / 4);
      try {
        const answer = await this.ask("report", () => ({ client: this.client, items }), { deadlineMs: this.io.now() });
        for (const { error } of answer.items as Json[]) {
          if (error) this.io.log(`a late report was refused: ${error.detail}`);
        }
      } catch (why) {
        this.share.later.unshift(...items); // a repeated report counts once
        if (why instanceof Unavailable) return;
        throw why;
      }
    }
  }

  /** Reports what was kept, before the client ends. */
  async flush(): Promise<void> {
    this.share.back();
    await this.#reportLater();
    if (this.share.later.length) this.io.log(`${this.share.later.length} requests were not reported`);
  }

  async #report(batches: Batch[]): Promise<(Next | BadCall)[]> {
    const shares = this.share.onUnavailable === "share";
    const heard: (Next | BadCall)[] = [];
    for (const { told, items } of batches) {
      if (!items.length) continue;
      const deadlineMs = this.io.now() + (shares ? 0 : REPORT_WITHIN_MS);
      try {
        const answer = await this.ask("report", () => ({ client: this.client, items }), { deadlineMs });
        heard.push(...this.#heard(told, answer.items));
      } catch (error) {
        if (!shares || !(error instanceof Unavailable)) throw error;
        heard.push(...this.#kept(told, items));
      }
    }
    return heard;
  }

  /** Keeps reports until a coordinator answers, and decides on the next steps alone. */
  #kept(told: Batch["told"], items: Json[]): Next[] {
    return told.map(([permit, outcome], i) => {
      this.share.keep(permit, items[i] as Json, outcome);
      if (!outcome.bodyComing) this.#end(permit);
      return this.#alone(outcome, nextOf({ next: "done", late: true }));
    });
  }

  #end(permit: PermitState): void {
    permit.isOver = true;
    this.share.release(permit);
  }

  /** Splits reports into calls that the coordinator accepts. A single report always fits. */
  #batches(told: Told): Batch[] {
    const batches: Batch[] = [];
    let batch: Batch | undefined, room = 0;
    for (const [permit, outcome] of told) {
      const item = this.#told(permit, outcome);
      const size = Buffer.byteLength(JSON.stringify(item)) + 1;
      if (!batch || size > room || batch.items.length === REPORTS_MAX) {
        batches.push((batch = { told: [], items: [] }));
        room = REPORTS_BYTES_MAX;
      }
      room -= size;
      batch.told.push([permit, outcome]);
      batch.items.push(item);
    }
    return batches;
  }

  #told(permit: PermitState, outcome: Outcome): Json {
    const { grant } = permit;
    const filled = { ...outcome, used: { ...permit.used, ...outcome.used } };
    // The URL of several departures may stand for several pages.
    if (grant.slots === 1 && isUrl(grant.wish.target)) filled.resource ??= grant.wish.target;
    const latencyMs = outcome.latencyMs ?? Math.max(0, this.io.now() - permit.startMs);
    const item = reportOf(filled, permit.name, permit.slot, latencyMs);
    return grant.sent ? { ...item, sent: grant.sent } : item;
  }

  #heard(told: Batch["told"], answers: Json[]): (Next | BadCall)[] {
    return told.map(([permit, outcome], i) => {
      const answer = answers[i] ?? {};
      if (answer.error) return new BadCall(answer.error.detail, answer.error.field);
      if (!outcome.bodyComing) this.#end(permit);
      this.share.heard(permit.key, answer, this.io.now());
      const next = nextOf(answer);
      return next.late ? this.#alone(outcome, next) : next;
    });
  }

  /**
   * Decides on a retry if the coordinator does not know the permit: it was killed or the lease has
   * ended, so it cannot judge the request. The request would be lost without this decision.
   */
  #alone(outcome: Outcome, next: Next): Next {
    const failed = outcome.error !== undefined || FOR_NOW.includes(outcome.status ?? 0);
    const isOver = !SAFE.includes(outcome.method ?? "GET") || (outcome.attempt ?? 1) >= ALONE_MAX;
    if (next.what !== "done" || !failed || isOver) return next;
    return { ...next, what: "retry", afterMs: BACKOFF_CAP_MS * (1 + this.io.chance()) };
  }

  /** Extends leases. Permits whose leases have ended are marked. */
  async renew(permits: PermitState[]): Promise<void> {
    const byName = new Map(permits.filter(({ grant }) => !grant.sent).map((permit) => [permit.name, permit]));
    if (!byName.size) return;
    const deadlineMs = Math.max(...permits.map((permit) => permit.leaseUntilMs));
    const askedMs = this.io.now();
    const body = { client: this.client, permits: [...byName.keys()] };
    const answer = await this.ask("renew", () => body, { deadlineMs });
    for (const { permit: name, lease_ms: leaseMs } of answer.renewed as Json[]) {
      // The lease counts from the time of the call, because the answer may have taken long.
      const permit = byName.get(name);
      if (permit) permit.leaseUntilMs = askedMs + leaseMs;
    }
    for (const name of answer.lost as string[]) {
      const permit = byName.get(name);
      if (permit) permit.hasEnded = true;
    }
  }

  /** As `renew`, but throws `LeaseLost` if the lease has ended. */
  async renewOne(permit: PermitState): Promise<void> {
    if (!permit.isLost(this.io.now())) await this.renew([permit]);
    if (permit.isLost(this.io.now())) throw new LeaseLost(`${permit.key}: the lease is over; abort the request`);
  }

  /**
   * Gives permits back. The call is repeated only for a short time, because a lease ends by itself.
   * `sent` means that the requests may have left, so their tokens stay spent.
   */
  async cancel(permits: PermitState[], sent: boolean): Promise<void> {
    const open = permits.filter((permit) => !permit.isOver);
    for (const permit of open) {
      if (sent && permit.grant.sent) this.share.keep(permit, { permit: permit.name, sent: permit.grant.sent });
      this.#end(permit);
    }
    const names = open.filter(({ grant }) => !grant.sent).map((permit) => permit.name);
    if (!names.length) return;
    const body = { client: this.client, permits: names, ...(sent ? { sent } : {}) };
    try {
      await this.ask("cancel", () => body, { deadlineMs: this.io.now() + BACKOFF_CAP_MS });
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      this.io.log(`${names.length} permits were not given back; their leases will end`);
    }
  }

  /** Sets an operator's limits of one key. Limits that are not named stay, and null removes one. */
  async setLimits(key: string, limits: Json): Promise<void> {
    const deadlineMs = this.io.now() + REPORT_WITHIN_MS;
    await this.ask(`keys/${encodeURIComponent(key)}`, () => limits, { deadlineMs, method: "PATCH" });
  }

  /**
   * Returns the body of the answer, or undefined if a turn of the share serves `asked`. Repeats a
   * call without an answer until the deadline.
   */
  async ask(path: string, body: () => Json, { deadlineMs, method = "POST", asked, signal }: Asking): Promise<any> {
    const { io, share } = this;
    for (let failures = 1; ; failures += 1) {
      signal?.throwIfAborted();
      const said = body();
      let timeoutMs = share.isOn(io.now()) ? BACKOFF_CAP_MS : (said.wait_ms ?? 0) + ANSWER_TAKES_MAX_MS;
      if (asked || path === "cancel") {
        timeoutMs = Math.min(timeoutMs, Math.max(0, deadlineMs - io.now()) + LATE_MAX_MS);
      }
      const reply = await io.send({ method, path, body: said, timeoutMs }, signal);
      const isAway = "why" in reply || AWAY.includes(reply.status);
      if (!isAway) {
        if (!isOfCoordinator(reply, path)) throw noCoordinator(reply);
        if (reply.status >= 300) throw problemOf(reply);
        this.#isBack();
        return reply.body;
      }
      const why = "why" in reply ? reply.why : `${reply.url}: status ${reply.status}`;
      const capMs = Math.min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2 ** Math.min(failures - 1, 16));
      const pauseMs = io.chance() * capMs + (("retryAfterMs" in reply && reply.retryAfterMs) || 0);
      if ("why" in reply || !BUSY.includes(reply.status)) {
        share.away(io.now());
        if (asked && share.onUnavailable === "stop") {
          if (failures >= share.coordinators) throw new Unavailable(why);
          continue;
        }
        if (asked && (await asked.goOn(pauseMs, signal))) return undefined;
      }
      if (io.now() + pauseMs > deadlineMs) throw new Unavailable(why);
      this.#warn(why);
      await io.sleep(pauseMs, signal);
    }
  }

  /** Logs that the coordinator is unavailable, at most once per `WARN_EVERY_MS`. */
  #warn(why: string): void {
    const now = this.io.now();
    this.#awaySinceMs ??= now;
    if (now - this.#warnedMs < WARN_EVERY_MS) return;
    this.#warnedMs = now;
    const away = Math.round((now - this.#awaySinceMs) / 1000);
    this.io.log(`the coordinator is unavailable for ${away} s (${why}); nothing leaves; trying again`);
  }

  #isBack(): void {
    this.share.back();
    if (this.#awaySinceMs === undefined) return;
    const away = Math.round((this.io.now() - this.#awaySinceMs) / 1000);
    this.#awaySinceMs = undefined;
    this.io.log(`the coordinator is available again after ${away} s`);
  }
}

function onlyOurs(error: unknown): void {
  if (!(error instanceof PolitelyError)) throw error;
}

function noneWrong(heard: (Next | BadCall)[]): Next[] {
  return heard.map((each) => {
    if (each instanceof BadCall) throw each;
    return each;
  });
}

/** Returns whether the answer may be one of a coordinator, and not of another web server. */
function isOfCoordinator(reply: Reply, path: string): boolean {
  if (reply.status >= 300) return reply.isProblem;
  const field = ANSWER_FIELDS[path];
  return typeof reply.body === "object" && reply.body !== null && (field === undefined || field in reply.body);
}

function noCoordinator(reply: Reply): BadCall {
  return new BadCall(
    `${reply.url}: this is no coordinator, or one of another version: it answers ${reply.status};` +
      " start `politely serve`, or name another with new Client({ url }) or POLITELY_COORDINATOR",
    undefined,
    0,
  );
}

function problemOf({ body, status }: Reply): BadCall {
  const problem = Object(body) as Json;
  return new BadCall(problem.detail ?? problem.title ?? `status ${status}`, problem.field, status);
}
