import { CLOSING } from "./asked.js";
import { Local, type Place } from "./local.js";
import { AWAY, type NoReply, type Reply } from "./talk.js";
import type { Json } from "./wire.js";

/**
 * Coordinators that share their keys, or the local one if none is named. The first is called. If it
 * does not answer or is closing, the next one is called. The local one is started again instead.
 */
export class Places {
  readonly #named: Place[];
  readonly #local: Local | undefined;
  #current = 0;

  /** Throws a `TypeError` if a URL is invalid, or if none is named and the `local` one is refused. */
  constructor(urls: string | readonly string[] | undefined, local: boolean) {
    urls ??= process.env.POLITELY_COORDINATOR || undefined;
    const named = typeof urls === "string" ? urls.split(",") : (urls ?? []);
    this.#named = named.map((url) => ({ url: apiOf(url.trim()) }));
    if (urls === undefined && local) this.#local = new Local();
    else if (!named.length) {
      throw new TypeError("no coordinator is named: set POLITELY_COORDINATOR, or the option url");
    }
  }

  get count(): number {
    return this.#local ? 2 : this.#named.length; // the second is the restarted one
  }

  /** Returns the coordinator to call. Throws a `BadCall` if the local one cannot be started. */
  async current(): Promise<Place> {
    return this.#local ? this.#local.find() : (this.#named[this.#current] as Place);
  }

  /**
   * Takes the reply from `place`. If it does not serve the call, the next place is called from now
   * on.
   */
  heard(place: Place, reply: Reply | NoReply): Reply | NoReply {
    if (this.#local && "status" in reply && isOfStranger(reply)) {
      reply = { why: `${reply.url}: another program answers there` };
    }
    if (this.count === 1 || !isLeaving(reply)) return reply;
    if (this.#local) {
      this.#local.lost(place);
      const { trouble } = this.#local;
      if ("why" in reply && trouble) return { why: `${reply.why}; ${trouble}` };
    } else if (this.#named[this.#current] === place) {
      // Of several concurrent failures only one moves on.
      this.#current = (this.#current + 1) % this.count;
    }
    // The Retry-After is only about the coordinator that sent it.
    return { ...reply, retryAfterMs: undefined };
  }
}

/** Returns the URL of the API of the named coordinator. `http://` is assumed. */
function apiOf(named: string): string {
  const url = named.includes("://") ? named : `http://${named}`;
  if (!/^https?:\/\//.test(url)) {
    throw new TypeError(`a coordinator's URL begins with http:// or https://: "${named}"`);
  }
  const host = URL.canParse(url) ? new URL(url).hostname : "";
  // "http:/a" would be the host "http".
  if (!host || (url !== named && /^https?$/.test(host))) {
    throw new TypeError(`a coordinator's URL is http://HOST:PORT: "${named}"`);
  }
  return `${url.replace(/\/+$/, "")}/api/v1`;
}

/** Returns whether another program has the port of a local coordinator that has ended. */
function isOfStranger(reply: Reply): boolean {
  return reply.status === 401 || (reply.status >= 300 && !reply.isProblem);
}

function isLeaving(reply: Reply | NoReply): boolean {
  if ("why" in reply || AWAY.includes(reply.status)) return true;
  const said = Object(reply.body) as Json;
  const items = said.acquire ?? said.items;
  return Array.isArray(items) && items.some((item: Json) => item?.code === CLOSING);
}
