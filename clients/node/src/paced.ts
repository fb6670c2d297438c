// One request of an integration: its permits, and the reports about its answers.
import { brotliDecompressSync, constants, unzipSync } from "node:zlib";

import { Attempts } from "./attempts.js";
import type { Client, Waiting } from "./client.js";
import { bodyStartOf, errorKind, headersThatMatter, isReadWhole } from "./evidence.js";
import type { Permit } from "./permit.js";
import type { UsageReader } from "./usage.js";
import type { Cost, Next, Outcome, Wanted } from "./wire.js";

/** The largest body, in bytes, of which `used` is read. A larger one counts as estimated. */
const BODY_USED_MAX = 16 << 20;

export interface PacedOptions extends Omit<Wanted, "cost" | "method" | "retry">, Omit<Waiting, "signal"> {
  /** The cost of a request, or a function that estimates it. Default: 1. */
  cost?: Cost | ((request: { url: string; method: string; body: unknown }) => Cost) | undefined;
  /** Reads the amounts that a request used from its body, such as `usage.openai`. */
  used?: UsageReader | undefined;
}

/** The attempts at one request. */
export class Paced {
  readonly attempts: Attempts;
  /** Whether the body can be sent again. The coordinator decides which methods are retried. */
  readonly canRepeat: boolean;
  readonly #wanted: Wanted & Waiting;

  constructor(
    readonly client: Client,
    readonly url: string,
    method: string,
    private readonly options: PacedOptions,
    body: unknown,
  ) {
    const { cost, used: _, ...wanted } = options;
    this.attempts = new Attempts(method);
    this.canRepeat = canRepeat(body);
    this.#wanted = { ...wanted, method, cost: typeof cost === "function" ? cost({ url, method, body }) : cost };
  }

  /** Waits until the next attempt may be sent, and keeps its lease. */
  async begin(signal?: AbortSignal): Promise<Attempt> {
    const wanted = { ...this.#wanted, signal, retry: this.attempts.number > 1 };
    const permit = await this.client.acquire(this.url, wanted);
    permit.attempts = this.attempts;
    permit.keep();
    return new Attempt(this.client, permit, this.url, this.options.used);
  }

  /** Makes attempts until there is no further one. Returns its answer, or throws its error. */
  async send<T>(send: (attempt: Attempt) => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (;;) {
      const attempt = await this.begin(signal);
      let end: () => T;
      try {
        const answer = await send(attempt);
        end = () => answer;
      } catch (why) {
        const reported = attempt.failed(why);
        if (signal?.aborted) this.client.carry(reported);
        else await reported;
        end = () => {
          throw why;
        };
      }
      const pauseMs = this.canRepeat && !signal?.aborted ? this.attempts.pauseMs() : undefined;
      if (pauseMs === undefined) return end();
      await this.client.sleep(pauseMs, signal);
    }
  }
}

/** Returns whether a body can be sent again, which a stream and a generator cannot. */
export function canRepeat(body: unknown): boolean {
  const { next, [Symbol.asyncIterator]: parts } = Object(body);
  return !(body instanceof ReadableStream) && next === undefined && parts === undefined;
}

/** One attempt: what came of its answer so far. */
export class Attempt {
  readonly #sentMs = performance.now();
  #head: Outcome = {};
  #bytes = 0;
  #kept: Uint8Array[] = [];
  #headReport: Promise<unknown> = Promise.resolve();
  #hasEnded = false;
  #encoding = "";

  constructor(
    private readonly client: Client,
    readonly permit: Permit,
    private readonly url: string,
    private readonly used: UsageReader | undefined,
  ) {}

  /**
   * Takes the head of the answer. Returns whether its body decides on the next step, so is read
   * first. `encoding` is the coding in which the parts of the body come.
   */
  head(status: number, headers: Iterable<readonly [string, string]>, encoding = ""): boolean {
    this.#encoding = encoding;
    this.#head = {
      status,
      headers: headersThatMatter(headers, this.permit.sendBodies),
      latencyMs: performance.now() - this.#sentMs,
      resource: this.url,
    };
    return isReadWhole(status, this.permit.sendBodies);
  }

  /** Reports the head in the background. The slot stays taken until the body's end. */
  bodyComes(): void {
    this.#headReport = this.#report({ ...this.#head, bodyComing: true });
  }

  /** Takes a part of the body. */
  part(bytes: Uint8Array, isWhole = false): void {
    this.#bytes += bytes.length;
    // The reader of the body may take the memory of its parts over.
    if (isWhole || (this.used && this.#bytes <= BODY_USED_MAX)) this.#kept.push(bytes.slice());
  }

  /** Reports the answer at the end of its body, or the error that ended it. */
  async end(error?: unknown): Promise<Next | undefined> {
    if (this.#hasEnded) return undefined; // such as a body that was read and is then collected
    this.#hasEnded = true;
    await this.#headReport;
    const { permit } = this;
    const { status = 0, headers: _, ...head } = this.#head;
    const kind = error === undefined ? undefined : errorKind(error);
    const body = decoded(Buffer.concat(this.#kept), this.#encoding);
    this.#settle(body);
    if (kind) return this.#report({ ...head, error: kind });
    const bodyStart = isReadWhole(status, permit.sendBodies) ? bodyStartOf(status, body, permit.sendBodies) : undefined;
    return this.#report({ ...this.#head, bytes: this.#bytes, bodyStart });
  }

  /** Reports an error without an answer. One that says nothing about the host frees the slot. */
  async failed(error: unknown): Promise<Next | undefined> {
    return this.permit.failed(error, { resource: this.url }).catch((why: unknown) => {
      this.client.notReported(this.permit, why);
      return undefined;
    });
  }

  async #report(outcome: Outcome): Promise<Next | undefined> {
    try {
      return await this.permit.report(outcome);
    } catch (why) {
      this.client.notReported(this.permit, why); // a failed report must not lose the page
      return undefined;
    }
  }

  /** An error of the reader loses neither the page nor its report: the estimate counts. */
  #settle(body: Uint8Array): void {
    if (!this.used || this.#bytes > BODY_USED_MAX) return;
    try {
      this.permit.settle(this.used(body));
    } catch (why) {
      this.client.log(`${this.permit.key}: its use could not be read: ${String(why)}`);
    }
  }
}

/** Returns what came of a body without its coding, or nothing if it is damaged. */
function decoded(body: Buffer, encoding: string): Buffer {
  const bounds = { maxOutputLength: BODY_USED_MAX };
  try {
    switch (encoding) {
      case "gzip":
      case "deflate":
        return unzipSync(body, { ...bounds, finishFlush: constants.Z_SYNC_FLUSH });
      case "br":
        return brotliDecompressSync(body, { ...bounds, finishFlush: constants.BROTLI_OPERATION_FLUSH });
      default:
        return body;
    }
  } catch {
    return Buffer.alloc(0);
  }
}

/** Returns headers in pairs, as `Attempt.head` takes them. */
export function pairsOf(headers: Record<string, string | string[] | undefined>): [string, string][] {
  return Object.entries(headers).map(([name, value]) => [name, [value ?? ""].flat().join(", ")]);
}

const WHOLE_RANGE = /^bytes 0-(\d{1,18})\/(\d{1,18})$/i;

/** Returns the error of a 206 that was not requested. A part that is the whole is a page. */
export function unaskedPart(status: number, contentRange: string, wasRequested: boolean): string | undefined {
  const [, last, size] = WHOLE_RANGE.exec(contentRange.trim()) ?? [];
  if (status !== 206 || wasRequested || (last && Number(last) + 1 === Number(size))) return undefined;
  return `partial content (${contentRange.slice(0, 60)}) that was not requested; the page is not complete`;
}
