import { BottleneckError } from "./error.js";

/** The status of each job, by its id. A job goes through the statuses in their order. */
export class Lifecycle<Status extends string> {
  readonly #statuses: readonly Status[];
  readonly #places = new Map<string, number>();
  readonly #counts: number[];

  constructor(statuses: readonly Status[]) {
    this.#statuses = statuses;
    this.#counts = statuses.map(() => 0);
  }

  /** Adds a job with the first status. */
  start(id: string): void {
    this.#move(id, 0);
  }

  /** Moves a job to its next status. A job in the last one is removed. */
  next(id: string): void {
    const place = this.#places.get(id);
    if (place !== undefined) this.#move(id, place + 1);
  }

  /** Removes a job, in whichever status it is. */
  remove(id: string): void {
    this.#move(id, this.#statuses.length);
  }

  /** Returns a job's status, or null if its id is unknown. */
  jobStatus(id: string): Status | null {
    return this.#statuses[this.#places.get(id) ?? -1] ?? null;
  }

  /** Returns the ids of the jobs in a status, or all. */
  statusJobs(status?: Status): string[] {
    if (status === undefined) return [...this.#places.keys()];
    const wanted = this.#statuses.indexOf(status);
    if (wanted < 0) throw new BottleneckError(`status must be one of ${this.#statuses.join(", ")}`);
    return [...this.#places].filter(([, place]) => place === wanted).map(([id]) => id);
  }

  /** Returns the number of jobs in a status. */
  count(status: Status): number {
    return this.#counts[this.#statuses.indexOf(status)] ?? 0;
  }

  /** Returns the number of jobs in each status. */
  statusCounts(): Record<Status, number> {
    const pairs = this.#statuses.map((status) => [status, this.count(status)]);
    return Object.fromEntries(pairs) as Record<Status, number>;
  }

  #move(id: string, place: number): void {
    const before = this.#places.get(id);
    if (before !== undefined) this.#counts[before]! -= 1;
    if (place < this.#statuses.length) {
      this.#places.set(id, place);
      this.#counts[place]! += 1;
    } else {
      this.#places.delete(id);
    }
  }
}
