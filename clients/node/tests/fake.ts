// A fake coordinator with scripted answers, which records its calls.
import type { Call, Io, NoReply, Reply } from "../src/talk.js";
import type { Json } from "../src/wire.js";

export type Answer = { status?: number; body: Json; retry_after_s?: number; is_problem?: boolean } | "lost";

/** The time after which a wait is in vain, on a machine with much else to do. */
const VAIN_MS = 30_000;

export const granted = {
  status: "granted",
  item: 0,
  permit: "p1",
  key: "a.example",
  start_in_ms: 0,
  valid_for_ms: 500,
  lease_ms: 120_000,
  slots: 1,
  interval_ms: 0,
};
export const RETRY = { retry: { after_ms: 0, free: true } };

/** Returns an item of an answer with the fields that it lacks. */
export function whole(item: Json): Json {
  switch (item.status) {
    case "granted":
      return { ...granted, ...item };
    case "wait":
      return { item: 0, retry_in_ms: 0, reason: "pace", position: 3, ...item };
    case undefined:
      return { next: "done", rate: 2, ...item };
    default:
      return { item: 0, reason: item.code, ...item };
  }
}

/** Scripted answers by path, in turn. Without one, everything is granted and done. */
export class Fake implements Io {
  readonly calls: [string, Json][] = [];
  readonly slept: number[] = [];
  readonly lines: string[] = [];
  #granted = 0;

  constructor(readonly script: Record<string, Answer[]> = {}) {}

  now = (): number => performance.now();
  chance = (): number => 0.5;
  log = (line: string): number => this.lines.push(line);

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.slept.push(ms);
    await new Promise<void>((resolve, reject) => {
      signal?.throwIfAborted();
      const timer = setTimeout(resolve, ms);
      signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
    });
  }

  async send(call: Call, signal?: AbortSignal): Promise<Reply | NoReply> {
    signal?.throwIfAborted();
    const body = JSON.parse(JSON.stringify(call.body)) as Json;
    this.calls.push([call.path, body]);
    const answer = this.script[call.path]?.shift() ?? { body: this.#usual(call.path, body) };
    if (answer === "lost") return { why: "nobody listens" };
    const { status = 200, retry_after_s: seconds, is_problem: isProblem = status >= 400 } = answer;
    const retryAfterMs = seconds === undefined ? undefined : seconds * 1000;
    return { status, body: answer.body, retryAfterMs, url: "http://fake", isProblem };
  }

  #usual(path: string, body: Json): Json {
    const reports = (items: Json[]) => items.map(({ permit }) => whole({ permit }));
    const grants = (n: number) =>
      Array.from({ length: n }, (_, item) => ({ ...granted, item, permit: `p${(this.#granted += 1)}` }));
    switch (path) {
      case "acquire":
        return { items: grants(body.want?.any ?? body.items.length) };
      case "report":
        return { items: reports(body.items) };
      case "exchange":
        return { report: reports(body.report), acquire: grants(body.want?.any ?? body.acquire.length) };
      case "renew":
        return { renewed: body.permits.map((permit: string) => ({ permit, lease_ms: 120_000 })), lost: [] };
      default:
        return { cancelled: body.permits, lost: [] };
    }
  }

  /** Returns the bodies of the calls to `path`. */
  of(path: string): Json[] {
    return this.calls.filter(([called]) => called === path).map(([, body]) => body);
  }

  reports(): Json[] {
    return this.of("report").flatMap((body) => body.items);
  }

  items(): Json[] {
    return this.of("acquire").flatMap((body) => body.items);
  }

  /** Waits until this is so. */
  async until(condition: (fake: this) => unknown): Promise<void> {
    const began = performance.now();
    while (!condition(this)) {
      if (performance.now() - began > VAIN_MS) throw new Error(`in vain: ${String(condition)}`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }
}
