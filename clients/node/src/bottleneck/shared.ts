import { setMaxListeners } from "node:events";

import type { Client, Limits as Declared } from "../client.js";
import { Unavailable } from "../errors.js";
import type { Permit } from "../permit.js";
import type { Cost } from "../wire.js";
import type { Clock } from "./clock.js";
import { BottleneckError } from "./error.js";
import type { Job } from "./job.js";
import type { Limits, Offer } from "./limits.js";
import type { PriorityQueue } from "./queue.js";
import type { Settings, SettingsOptions } from "./settings.js";
import type { End, Turns, Uses } from "./turns.js";

/** The largest numbers of a coordinator. Without a number, its own defaults would hold. */
const MOST = { inFlight: 2 ** 32 - 1, rate: 1_000_000, burst: 1_000_000 };

/** The calls for permits under way. One at a time would start one job in each round trip. */
const ASKS_MAX = 8;

/**
 * The turns of a limiter whose limits are at a coordinator, on the key `custom/ID`. The queue, its
 * strategy and the priorities are those of this process.
 */
export class SharedTurns implements Turns {
  readonly #key: string;
  readonly #permits = new Map<Job, Permit>();
  readonly #closing = new AbortController();
  readonly #client: Promise<Client>;
  #declared: Promise<void> | undefined;
  /** Calls that give permits back. */
  readonly #calls = new Set<Promise<unknown>>();
  #asks = 0;
  #runningWeight = 0;
  #doneWeight = 0;

  /** `client` is that of the caller, or undefined for one of `POLITELY_COORDINATOR`. */
  constructor(
    id: string,
    client: Client | undefined,
    private readonly limits: Limits,
    private readonly clock: Clock,
    private readonly queue: PriorityQueue<Job>,
    private readonly uses: Uses,
  ) {
    this.#key = `custom/${id}`;
    declared(limits.settings); // throws what cannot be declared
    setMaxListeners(0, this.#closing.signal); // each call listens, more than ten at once
    this.#client = client ? Promise.resolve(client) : commonClient();
    this.ready().catch(() => {}); // The first job tries again, and says why it failed.
  }

  /** Waits until the coordinator has the limits. */
  ready(): Promise<void> {
    this.#declared ??= this.#client
      .then((client) => client.setLimits(this.#key, declared(this.limits.settings)))
      .catch((error: unknown) => {
        this.#declared = undefined;
        throw error;
      });
    return this.#declared;
  }

  offer(weight: number): Offer {
    if (weight > 1 && this.limits.settings.maxConcurrent !== null) {
      throw new BottleneckError(
        `a job of weight ${weight} cannot count towards maxConcurrent at a coordinator; use a reservoir for weights`,
      );
    }
    const queued = this.queue.length();
    return this.limits.offer(queued, weight, queued === 0, this.clock.now());
  }

  drain(): void {
    if (this.#closing.signal.aborted) return;
    for (let job; this.#asks < ASKS_MAX && (job = this.queue.at(this.#asks)); ) void this.#ask(job.options.weight);
  }

  release(job: Job, end: End): void {
    const { weight } = job.options;
    const permit = this.#permits.get(job);
    this.#permits.delete(job);
    this.#runningWeight -= weight;
    if (end !== "dropped") this.#doneWeight += weight;
    if (end === "resolved") this.#call(permit?.report({ status: 200 }));
    else this.#call(permit?.cancel({ sent: end === "rejected" }));
  }

  async running(): Promise<number> {
    return this.#runningWeight;
  }

  async done(): Promise<number> {
    return this.#doneWeight;
  }

  async check(weight: number): Promise<boolean> {
    await this.ready();
    const client = await this.#client;
    const permit = await client.acquire(this.#key, { cost: this.#cost(weight), waitMs: 0 }).catch(() => undefined);
    await permit?.cancel();
    return permit !== undefined;
  }

  async reservoir(): Promise<never> {
    throw new BottleneckError('the reservoir of datastore "politely" is on the coordinator\'s dashboard');
  }

  async incrementReservoir(): Promise<never> {
    throw new BottleneckError('the reservoir of datastore "politely" is reset with `politely budgets reset`');
  }

  async update(options: SettingsOptions): Promise<void> {
    declared(this.limits.changed(options));
    this.limits.update(options, this.clock.now());
    await this.#declared?.catch(() => {});
    this.#declared = undefined;
    await this.ready();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#calls, this.#declared?.catch(() => {})]);
  }

  /** Acquires a permit. It is for the job of this weight that is first when it is granted. */
  async #ask(weight: number): Promise<void> {
    const { signal } = this.#closing;
    this.#asks += 1;
    try {
      await this.ready();
      this.#start(await (await this.#client).acquire(this.#key, { cost: this.#cost(weight), signal }), weight);
    } catch (error) {
      // A job stays queued while the coordinator is unavailable: an operator may have to start it.
      const stays = signal.aborted || error instanceof Unavailable;
      const job = stays ? undefined : this.#take(weight);
      if (!signal.aborted) this.uses.fail(job, error);
    }
    this.#asks -= 1;
    this.drain();
  }

  #take(weight: number): Job | undefined {
    return this.queue.shift((queued) => queued.options.weight === weight);
  }

  /** Starts the first job of this weight. There is none if it was dropped meanwhile. */
  #start(permit: Permit, weight: number): void {
    const job = this.#take(weight);
    if (job === undefined) return this.#call(permit.cancel());
    permit.keep().addEventListener("abort", () => this.uses.fail(undefined, permit.signal.reason));
    this.#permits.set(job, permit);
    this.#runningWeight += weight;
    this.uses.launch(job, { wait: 0, reservoir: null });
  }

  /** Lets a call go on beside the jobs. Its error is an event. */
  #call(call: Promise<unknown> | undefined): void {
    if (call === undefined) return;
    const failed = (error: unknown) => this.uses.fail(undefined, error);
    const heard = call.catch(failed).finally(() => this.#calls.delete(heard));
    this.#calls.add(heard);
  }

  /** A weight is tokens of the rate if the reservoir grows, and points of the window otherwise. */
  #cost(weight: number): Cost {
    if (this.limits.settings.reservoirIncreaseInterval !== null) return Math.max(weight, 1);
    return { requests: 1, points: weight };
  }
}

let common: Promise<Client> | undefined;

/** Returns the client of all limiters without their own. Limits of one process do not load it. */
function commonClient(): Promise<Client> {
  return (common ??= import("../client.js").then((module) => new module.Client()));
}

/** Returns the limits of the coordinator's key. Throws `BottleneckError` for others. */
export function declared(settings: Readonly<Settings>): Declared {
  const { maxConcurrent, minTime, reservoir, reservoirRefreshInterval: refresh, reservoirRefreshAmount } = settings;
  const { reservoirIncreaseInterval: increase, reservoirIncreaseAmount, reservoirIncreaseMaximum } = settings;
  const wrong = (what: string) => new BottleneckError(`datastore "politely" ${what}`);
  if (reservoir !== null && !refresh && !increase) throw wrong("needs reservoirRefreshInterval with reservoir");
  if (refresh && increase) throw wrong("fills a reservoir in one way: refresh or increase");
  if (increase && minTime > 0) throw wrong("cannot keep minTime beside reservoirIncreaseInterval");
  const fixed = { law: "fixed", inFlight: maxConcurrent ?? MOST.inFlight, limits: [] };
  if (increase) {
    const amount = reservoirIncreaseAmount ?? 0;
    return { ...fixed, rate: (amount * 1000) / increase, burst: reservoirIncreaseMaximum ?? amount };
  }
  const pace = minTime > 0 ? { rate: 1000 / minTime, burst: 1 } : { rate: MOST.rate, burst: MOST.burst };
  if (!refresh) return { ...fixed, ...pace };
  // Windows are whole seconds: a longer one never allows more than was asked for.
  return { ...fixed, ...pace, limits: [`${reservoirRefreshAmount} points/${Math.ceil(refresh / 1000)}s`] };
}
