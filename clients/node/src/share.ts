// A worker without a coordinator: it waits, stops, or goes on with its share.
//
// The share is that of the last answer: a place among the live workers, and the limit of each key
// at its last grant. Of N workers each has every N-th turn of a key, and turn k is at k / rate on
// the coordinator's clock. So together the workers keep the rate, although none knows of the
// others. Times are milliseconds of one monotonic clock.
import type { PermitState } from "./state.js";
import { freshId, itemOf, type Grant, type Json, type Outcome, type Wish } from "./wire.js";

/** The behaviour while no coordinator answers. */
export type OnUnavailable = "wait" | "share" | "stop";

/** From the first call without an answer to the first turn, set by the coordinator. */
const BEGINS_AFTER_MS = 3_000;
/** An older turn is lost. */
const LATE_MAX_MS = 20;
/** Only this process knows the lease of a permit on a share. */
const LEASE_MS = 3_600_000;
/** Maximum number of reports that are kept for later. Beyond it the oldest is dropped. */
const LATER_MAX = 65_536;
/** Statuses that end the share of their key. */
const REFUSALS = [403, 429, 503];

interface Limit {
  rate: number;
  inFlight: number;
  toldMs: number;
  notBeforeMs: number;
}

interface Place {
  index: number;
  of: number;
  /** Milliseconds by which the coordinator's clock is ahead of this one. */
  aheadMs: number;
  untilMs: number;
  lastsMs: number;
}

/** The share of one client. */
export class Share {
  /** Reports that wait for a coordinator. */
  later: Json[] = [];
  #awaySinceMs: number | undefined;
  #place: Place | undefined;
  #limits = new Map<string, Limit>();
  #keys = new Map<string, string>();
  #held = new Map<string, Set<PermitState>>();

  constructor(
    readonly onUnavailable: OnUnavailable = "wait",
    /** The number of coordinators that are called, one after the other. */
    readonly coordinators = 1,
  ) {}

  /** Whether the last call had no answer. */
  get isAway(): boolean {
    return this.#awaySinceMs !== undefined;
  }

  /** Returns whether the worker has a share and no coordinator answers. */
  isOn(nowMs: number): boolean {
    return this.isAway && this.#place !== undefined && nowMs < this.#place.untilMs;
  }

  /** Returns the fields that a call adds. */
  asked(): Json {
    if (this.onUnavailable !== "share") return {};
    return { share: this.#place ? { workers: this.#place.of, place: this.#place.index } : {} };
  }

  /** Notes the share in the answer to a call. */
  tell(share: Json | undefined, sentMs: number, nowMs: number): void {
    this.#place = share && {
      index: share.place,
      of: share.workers,
      aheadMs: share.clock_us / 1000 - nowMs,
      untilMs: sentMs + share.lasts_ms,
      lastsMs: share.lasts_ms,
    };
  }

  /** Notes the limit of a grant's key. Without one, its requests have further limits. */
  granted(grant: Grant, limit: Json | undefined, nowMs: number): void {
    if (this.onUnavailable !== "share" || grant.wish.also?.length) return;
    this.#keys.set(originOf(grant.wish), grant.key);
    if (limit && limit.rate > 0) {
      const { rate, in_flight: inFlight } = limit;
      this.#limits.set(grant.key, { rate, inFlight, toldMs: nowMs, notBeforeMs: -Infinity });
    } else {
      this.#limits.delete(grant.key);
    }
  }

  /** Counts a permit until it is released, or until its lease has ended. */
  hold(permit: PermitState): PermitState {
    if (this.onUnavailable === "share") {
      const held = this.#held.get(permit.key);
      if (held) held.add(permit);
      else this.#held.set(permit.key, new Set([permit]));
    }
    return permit;
  }

  /** Counts a permit no longer. */
  release(permit: PermitState): void {
    this.#held.get(permit.key)?.delete(permit);
  }

  /** Notes the rate and the hold in the answer to a report. */
  heard(key: string, answer: Json, nowMs: number): void {
    const limit = this.#limits.get(key);
    if (!limit) return;
    limit.rate = answer.rate || limit.rate;
    limit.notBeforeMs = Math.max(limit.notBeforeMs, nowMs + (answer.hold_ms ?? 0));
  }

  /** Notes a call without an answer. */
  away(nowMs: number): void {
    this.#awaySinceMs ??= nowMs;
  }

  /** Notes an answer. */
  back(): void {
    this.#awaySinceMs = undefined;
  }

  /** Keeps a report for later. A refusal ends the share of its key. */
  keep(permit: PermitState, item: Json, outcome?: Outcome): void {
    this.later.push(item);
    if (this.later.length > LATER_MAX) this.later.shift();
    if (outcome?.status !== undefined && REFUSALS.includes(outcome.status)) this.#limits.delete(permit.key);
  }

  /** Takes the first turn of one of the wishes within so many milliseconds. */
  takeTurn(wishes: Wish[], withinMs: number, nowMs: number): { index: number; turnMs: number } | undefined {
    const turns = wishes.map((wish) => this.#turn(wish, nowMs));
    const turnMs = Math.min(...turns);
    const index = turns.indexOf(turnMs);
    const limit = this.#limit(wishes[index]);
    if (!limit || !(turnMs <= nowMs + withinMs)) return undefined;
    limit.notBeforeMs = turnMs + 1e-3;
    return { index, turnMs: Math.max(turnMs, nowMs) };
  }

  /** Returns the permit of a turn. */
  grant(wish: Wish, startMs: number): Grant {
    const { id: _, ...sent } = itemOf(wish);
    return {
      wish, permit: `share-${freshId()}`, key: this.#keys.get(originOf(wish)) ?? "", startMs, validForMs: 500,
      leaseMs: LEASE_MS, slots: 1, intervalMs: 0, sendBodies: undefined, sent,
    };
  }

  #limit(wish: Wish | undefined): Limit | undefined {
    return wish && this.#limits.get(this.#keys.get(originOf(wish)) ?? "");
  }

  /** Returns the next turn of a wish, or infinity if it must wait for a coordinator. */
  #turn(wish: Wish, nowMs: number): number {
    const { cost = 1, slots = 1 } = wish;
    const place = this.#place, limit = this.#limit(wish), away = this.#awaySinceMs;
    const isPlain = !(wish.bytes || wish.also?.length || wish.crawlDelayMs) && slots === 1;
    if (!this.isOn(nowMs) || !place || !limit || away === undefined || !isPlain || typeof cost !== "number") {
      return Infinity;
    }
    const share = Math.floor(limit.inFlight / place.of) + Number(place.index < limit.inFlight % place.of);
    if (this.#inFlight(this.#keys.get(originOf(wish)) ?? "", nowMs) >= share) return Infinity;
    const first = Math.max(away + BEGINS_AFTER_MS, limit.notBeforeMs, nowMs - LATE_MAX_MS) + place.aheadMs;
    const cycle = (1000 * place.of) / limit.rate, phase = (1000 * place.index) / limit.rate;
    const turn = Math.ceil((first - phase) / cycle) * cycle + phase - place.aheadMs + cycle * (cost - 1);
    return turn < Math.min(place.untilMs, limit.toldMs + place.lastsMs) ? turn : Infinity;
  }

  #inFlight(key: string, nowMs: number): number {
    return [...(this.#held.get(key) ?? [])].filter((permit) => !permit.isLost(nowMs)).length;
  }
}

/** Returns what determines the key of a wish. */
function originOf(wish: Wish): string {
  return URL.canParse(wish.target) ? new URL(wish.target).origin : wish.target;
}
