import { type Cancel, type Clock, systemClock } from "./clock.js";
import { type Emitter, Events } from "./events.js";
import { Bottleneck, type ConstructorOptions } from "./limiter.js";

export interface GroupEvents {
  error: (error: any) => void;
  /** A limiter was created. It is called before `key` returns it. */
  created: (limiter: Bottleneck, key: string) => void;
}

export interface Group extends Emitter<GroupEvents> {}

/** A limiter for each key, made when the key is first used, and forgotten when it is idle. */
export class Group {
  readonly id: string;
  /** Milliseconds without a job after which a limiter is forgotten. Default: 300000. */
  timeout: number;
  /** The limiters by key. */
  readonly instances: Record<string, Bottleneck> = Object.create(null);

  readonly #events: Events;
  readonly #clock: Clock;
  #options: ConstructorOptions;
  #cancelSweep: Cancel | undefined;

  constructor(options: ConstructorOptions = {}) {
    this.#events = new Events(this);
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.id = options.id ?? "group-key";
    this.timeout = options.timeout ?? 300_000;
  }

  /** Returns the limiter of a key. */
  key(key = ""): Bottleneck {
    this.#sweepLater();
    const known = this.instances[key];
    if (known !== undefined) return known;
    const limiter = new Bottleneck({ ...this.#options, id: `${this.id}-${key}`, timeout: this.timeout });
    this.instances[key] = limiter;
    void this.#events.trigger("created", limiter, key);
    return limiter;
  }

  /** Forgets the limiter of a key. Returns whether there was one. */
  async deleteKey(key = ""): Promise<boolean> {
    const limiter = this.instances[key];
    delete this.instances[key];
    await limiter?.disconnect();
    return limiter !== undefined;
  }

  keys(): string[] {
    return Object.keys(this.instances);
  }

  /** Returns the keys of this process. */
  async clusterKeys(): Promise<string[]> {
    return this.keys();
  }

  limiters(): { key: string; limiter: Bottleneck }[] {
    return Object.entries(this.instances).map(([key, limiter]) => ({ key, limiter }));
  }

  /** Changes the options of limiters that are created from now on. */
  updateSettings(options: ConstructorOptions = {}): void {
    this.#options = { ...this.#options, ...options };
    this.timeout = options.timeout ?? this.timeout;
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
    this.#sweepLater();
  }

  async disconnect(_flush?: boolean): Promise<void> {
    this.#cancelSweep?.();
    await Promise.all(this.limiters().map(({ limiter }) => limiter.disconnect()));
  }

  /** Looks for idle limiters twice in each timeout, while there are limiters. */
  #sweepLater(): void {
    const sweep = () => {
      this.#cancelSweep = undefined;
      const idleBefore = this.#clock.now() - this.timeout;
      for (const { key, limiter } of this.limiters()) {
        const since = limiter.idleSince();
        if (since !== null && since < idleBefore) void this.deleteKey(key);
      }
      if (this.keys().length > 0) this.#sweepLater();
    };
    this.#cancelSweep ??= this.#clock.after(this.timeout / 2, sweep, false);
  }
}
