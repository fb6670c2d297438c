import { BottleneckError } from "./error.js";

type Listener = (...args: never[]) => unknown;

/** The methods that `Events` adds to its target. `Map` names each event's listener type. */
export interface Emitter<Map> {
  /** Calls `listener` at each event of this name. */
  on<Name extends keyof Map>(name: Name, listener: Map[Name]): this;
  /** Calls `listener` at the next event of this name. */
  once<Name extends keyof Map>(name: Name, listener: Map[Name]): this;
  /** Removes the listeners of `name`, or all. */
  removeAllListeners(name?: keyof Map): void;
}

/** Adds `on`, `once` and `removeAllListeners` to an object, and calls its listeners. */
export class Events {
  readonly #listeners = new Map<string, { run: Listener; once: boolean }[]>();

  constructor(target: object) {
    if ("on" in target || "once" in target || "removeAllListeners" in target) {
      throw new BottleneckError("An Emitter already exists for this object");
    }
    const add = (once: boolean) => (name: string, run: Listener) => {
      const listeners = this.#listeners.get(name) ?? [];
      // A new array, because a listener may add another while `trigger` walks the old one.
      if (typeof run === "function") this.#listeners.set(name, [...listeners, { run, once }]);
      return target;
    };
    const removeAllListeners = (name?: string) =>
      name === undefined ? this.#listeners.clear() : void this.#listeners.delete(name);
    Object.assign(target, { on: add(false), once: add(true), removeAllListeners });
  }

  /** Returns the number of listeners of an event. */
  listenerCount(name: string): number {
    return this.#listeners.get(name)?.length ?? 0;
  }

  /**
   * Calls the listeners at once, and returns the first of their results that is not null.
   * The error of a listener becomes an event `error`. That of an `error` listener is thrown.
   */
  async trigger(name: string, ...args: unknown[]): Promise<unknown> {
    if (name !== "debug" && this.#listeners.has("debug")) {
      void this.trigger("debug", `Event triggered: ${name}`, args);
    }
    const listeners = this.#listeners.get(name);
    if (listeners === undefined) return undefined;
    this.#listeners.set(name, listeners.filter(({ once }) => !once));
    const results = await Promise.all(
      listeners.map(async ({ run }) => {
        try {
          return await run(...(args as never[]));
        } catch (error) {
          if (name === "error") throw error;
          void this.trigger("error", error);
          return undefined;
        }
      }),
    );
    return results.find((result) => result !== undefined && result !== null);
  }
}
