import type { Dispatcher } from "undici";

import type { Client } from "./client.js";
import { Paced, pairsOf, type Attempt, type PacedOptions } from "./paced.js";

type Controller = Dispatcher.DispatchController;
type Headers = Parameters<NonNullable<Dispatcher.DispatchHandler["onResponseStart"]>>[2];

/**
 * Returns an interceptor for undici 7 or later, for `new Agent().compose(polite(client))`. Requests
 * wait for their permits, are reported, and are sent again if the coordinator says so and the body
 * can be repeated: none, a text or bytes. Error answers come to the caller when they are whole.
 * With a redirect interceptor that is composed after this one, each hop has a permit of its own.
 */
export function polite(client: Client, options: PacedOptions = {}): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => (request, handler) => {
    if (!handler.onRequestStart) {
      throw new TypeError("Node's own fetch needs new Dispatcher1Wrapper(dispatcher) of undici 8, or use politeFetch");
    }
    void new PoliteDispatch(client, options, dispatch, request, handler).run();
    return true;
  };
}

/** An answer that was read whole before the next step was known. */
interface Whole {
  status: number;
  headers: Headers;
  statusText: string | undefined;
  parts: Buffer[];
  trailers: Headers;
}

/** One request, with a controller that works from its wait to the end of its body. */
class PoliteDispatch implements Controller {
  readonly #given = new AbortController();
  readonly #paced: Paced;
  #target: Controller | undefined;
  #isPaused = false;

  constructor(
    private readonly client: Client,
    options: PacedOptions,
    private readonly dispatch: Dispatcher["dispatch"],
    private readonly request: Dispatcher.DispatchOptions,
    private readonly handler: Dispatcher.DispatchHandler,
  ) {
    const url = new URL(request.path, request.origin).href;
    this.#paced = new Paced(client, url, request.method, options, request.body);
  }

  get aborted(): boolean {
    return this.#given.signal.aborted;
  }
  get reason(): Error | null {
    return this.#given.signal.reason ?? null;
  }
  get paused(): boolean {
    return this.#isPaused;
  }
  get rawHeaders(): NonNullable<Controller["rawHeaders"]> | null {
    return this.#target?.rawHeaders ?? null;
  }
  get rawTrailers(): NonNullable<Controller["rawTrailers"]> | null {
    return this.#target?.rawTrailers ?? null;
  }
  abort(reason: Error): void {
    this.#given.abort(reason);
    this.#target?.abort(reason);
  }
  pause(): void {
    this.#isPaused = true;
    this.#target?.pause();
  }
  resume(): void {
    this.#isPaused = false;
    this.#target?.resume();
  }

  async run(): Promise<void> {
    try {
      this.handler.onRequestStart?.(this, {});
      const whole = await this.#paced.send((attempt) => this.#attempt(attempt), this.#given.signal);
      if (whole) this.#pass(whole);
    } catch (error) {
      this.handler.onResponseError?.(this, error as Error);
    }
  }

  #pass({ status, headers, statusText, parts, trailers }: Whole): void {
    this.handler.onResponseStart?.(this, status, headers, statusText);
    for (const part of parts) this.handler.onResponseData?.(this, part);
    this.handler.onResponseEnd?.(this, trailers);
  }

  /** Returns an answer that decides on the next step, or nothing if the caller has it already. */
  async #attempt(attempt: Attempt): Promise<Whole | undefined> {
    const { signal } = attempt.permit;
    signal.addEventListener("abort", () => this.#target?.abort(signal.reason));
    const answer = await new Promise<Whole | undefined>((resolve, reject) => {
      const { handler } = this;
      let whole: Whole | undefined, isPassed = false;
      this.dispatch(this.request, {
        onRequestStart: (controller) => {
          this.#target = controller;
          if (this.aborted) controller.abort(this.reason as Error);
          if (this.#isPaused) controller.pause();
        },
        onRequestUpgrade: (_, status, headers, socket) => {
          attempt.head(status, pairsOf(headers));
          this.client.carry(attempt.end());
          resolve(undefined);
          handler.onRequestUpgrade?.(this, status, headers, socket);
        },
        onResponseStart: (_, status, headers, statusText) => {
          if (status >= 200 && attempt.head(status, pairsOf(headers), String(headers["content-encoding"] ?? ""))) {
            whole = { status, headers, statusText, parts: [], trailers: {} };
            return;
          }
          if (status >= 200) {
            isPassed = true;
            attempt.bodyComes();
            resolve(undefined);
          }
          handler.onResponseStart?.(this, status, headers, statusText);
        },
        onResponseData: (_, part) => {
          attempt.part(part, whole !== undefined);
          if (whole) whole.parts.push(part);
          else handler.onResponseData?.(this, part);
        },
        onResponseEnd: (_, trailers) => {
          if (whole) return resolve({ ...whole, trailers });
          this.client.carry(attempt.end());
          handler.onResponseEnd?.(this, trailers);
        },
        onResponseError: (_, error) => {
          if (!isPassed) return reject(error);
          this.client.carry(attempt.end(error));
          handler.onResponseError?.(this, error);
        },
      });
    });
    if (answer) await attempt.end();
    return answer;
  }
}
