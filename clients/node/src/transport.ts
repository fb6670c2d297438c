// Sends calls to the coordinator with node:http, so that neither a global dispatcher nor a proxy of
// the environment has them: these are for pages.
import { setMaxListeners } from "node:events";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { setTimeout as sleep } from "node:timers/promises";

import { BadCall } from "./errors.js";
import type { Place } from "./local.js";
import { Places } from "./places.js";
import type { Call, Io, NoReply, Reply } from "./talk.js";

const CONNECT_TAKES_MAX_MS = 5_000;
const KEPT_CONNECTIONS_MAX = 64;
/** The type of every error of a coordinator. */
const PROBLEM = "application/problem+json";
/** Codes of errors about the coordinator's certificate. No retry changes them. */
const UNTRUSTED = /^(CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|ERR_TLS_CERT)/;

export class HttpIo implements Io {
  readonly #agents: Record<string, http.Agent>;
  readonly #headers: Record<string, string>;

  /** Throws a `TypeError` if no header may hold the token. */
  constructor(
    private readonly places: Places,
    readonly log: (line: string) => void,
    token: string | undefined = process.env.POLITELY_TOKEN,
  ) {
    this.#headers = { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) };
    // The error of node:http would name the token.
    if (/[^\t\x20-\x7e\x80-\xff]/.test(token ?? "")) throw new TypeError("the token holds what a header must not");
    const kept = { keepAlive: true, maxFreeSockets: KEPT_CONNECTIONS_MAX };
    // The authorities of Node, or those in SSL_CERT_FILE: a coordinator's is seldom a public one.
    const authorities = process.env.SSL_CERT_FILE;
    const ca = authorities ? { ca: readFileSync(authorities) } : {};
    this.#agents = { "http:": new http.Agent(kept), "https:": new https.Agent({ ...kept, ...ca }) };
  }

  now(): number {
    return performance.now();
  }

  chance(): number {
    return Math.random();
  }

  async sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    await sleep(ms, undefined, signal ? { signal } : {}).catch((error: unknown) => {
      throw signal?.aborted ? signal.reason : error;
    });
  }

  async send(call: Call, signal: AbortSignal | undefined): Promise<Reply | NoReply> {
    const place = await this.places.current();
    const { url } = place;
    signal?.throwIfAborted();
    if (signal) setMaxListeners(0, signal); // one signal may end any number of calls
    try {
      return this.places.heard(place, await this.#request(place, call, signal));
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      const { code = "", message } = error as NodeJS.ErrnoException;
      const why = `${shown(url)}: ${[code, message].filter(Boolean).join(": ")}`;
      // Another coordinator may have a trusted certificate.
      if (this.places.count === 1 && UNTRUSTED.test(code)) throw new BadCall(why, undefined, 0);
      return this.places.heard(place, { why });
    }
  }

  #request(place: Place, call: Call, signal: AbortSignal | undefined): Promise<Reply | NoReply> {
    return new Promise((resolve, reject) => {
      const base = place.url;
      const own = place.token ? { authorization: `Bearer ${place.token}` } : {};
      const url = new URL(`${base}/${call.path}`);
      const { request: open } = url.protocol === "https:" ? https : http;
      // Half a surrogate pair, as in a broken link, becomes U+FFFD as in a browser.
      const body = Buffer.from(JSON.stringify(call.body, (_, value) => value?.toWellFormed?.() ?? value));
      const request = open(url, {
        method: call.method,
        agent: this.#agents[url.protocol],
        headers: { ...this.#headers, ...own, "content-length": body.length },
      });
      const end = (why: string) => () => request.destroy(new Error(why));
      const timer = setTimeout(end(`no answer within ${call.timeoutMs / 1000} s`), call.timeoutMs);
      const connecting = setTimeout(end("no connection"), Math.min(CONNECT_TAKES_MAX_MS, call.timeoutMs));
      const abort = () => request.destroy(new Error("given up"));
      signal?.addEventListener("abort", abort);
      request.on("socket", (socket) => {
        const connected = () => clearTimeout(connecting);
        if (socket.connecting) socket.once("connect", connected);
        else connected();
      });
      request.on("response", (response) => {
        const parts: Buffer[] = [];
        response.on("data", (part: Buffer) => parts.push(part));
        response.on("error", reject);
        response.on("end", () => resolve(replyOf(response, Buffer.concat(parts).toString(), base)));
      });
      request.on("error", (error: NodeJS.ErrnoException) => {
        // The coordinator closed a kept connection. A call under the same ids counts once.
        const isStale = request.reusedSocket && error.code === "ECONNRESET";
        if (isStale) resolve(this.#request(place, call, signal));
        else reject(error);
      });
      request.on("close", () => {
        clearTimeout(timer);
        clearTimeout(connecting);
        signal?.removeEventListener("abort", abort);
        reject(new Error("the connection was closed"));
      });
      request.end(body);
    });
  }

  /** Closes the connections. */
  close(): void {
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }
}

/** Returns the reply, or why an answer such as half a page of a proxy is none. */
function replyOf(response: http.IncomingMessage, text: string, base: string): Reply | NoReply {
  const status = response.statusCode ?? 0;
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    if (status >= 200 && status < 300) {
      return { why: `${shown(base)}: status ${status} without JSON; is it a coordinator?` };
    }
  }
  const seconds = response.headers["retry-after"] ?? "";
  const retryAfterMs = /^\d+$/.test(seconds) ? Number(seconds) * 1000 : undefined;
  const isProblem = (response.headers["content-type"] ?? "").startsWith(PROBLEM);
  return { status, body, retryAfterMs, url: shown(base), isProblem };
}

/** Returns the URL without user and password. */
function shown(base: string): string {
  return base.replace(/\/\/[^/]*@/, "//");
}
