import type { Grant } from "./wire.js";

/** The largest amount of a unit: every whole number up to it is exact in JSON. */
const AMOUNT_MAX = 2 ** 53;
/** The most units of one request. */
const UNITS_MAX = 3;

/** One departure of a grant. Times are those of one monotonic clock, in milliseconds. */
export class PermitState {
  /** The time from which the request may leave. */
  readonly startMs: number;
  /** The time at which the slot returns by itself. A longer request must be renewed or aborted. */
  leaseUntilMs: number;
  /** Whether the coordinator answered that the lease has ended. */
  hasEnded = false;
  /** Whether the permit was reported or cancelled. */
  isOver = false;
  /** The amounts of units that the request used. They replace the estimates. */
  used: Record<string, number> = {};

  constructor(
    readonly grant: Grant,
    /** The index of this departure in its grant. */
    readonly slot = 0,
  ) {
    this.startMs = grant.startMs + slot * grant.intervalMs;
    this.leaseUntilMs = this.startMs + grant.leaseMs;
  }

  /** The coordinator's id for the permit. */
  get name(): string {
    return this.grant.permit;
  }

  /** The key whose limits the permit keeps. */
  get key(): string {
    return this.grant.key;
  }

  mayStart(nowMs: number): boolean {
    return this.startMs <= nowMs && nowMs <= this.startMs + this.grant.validForMs;
  }

  isLost(nowMs: number): boolean {
    return this.hasEnded || nowMs >= this.leaseUntilMs;
  }

  /** Sets the amounts that the next report sends. */
  settle(used: Record<string, number>): void {
    if (this.isOver) throw new TypeError("the permit was reported already; settle it before the report");
    for (const [unit, amount] of Object.entries(used)) {
      if (!Number.isInteger(amount) || amount < 0 || amount > AMOUNT_MAX) {
        throw new RangeError(`${unit} must be a whole number from 0 to 2^53, not ${amount}`);
      }
      if (!/^[a-z][a-z0-9_]{0,15}$/.test(unit)) {
        throw new RangeError(`"${unit}" is no unit; use 1 to 16 lowercase letters, digits and _`);
      }
    }
    const all = { ...this.used, ...used };
    if (Object.keys(all).length > UNITS_MAX) throw new RangeError(`more than ${UNITS_MAX} units; remove some`);
    this.used = all;
  }
}
