import { Readable } from "node:stream";

import { endOf } from "./body.js";
import type { Client } from "./client.js";
import { Paced, pairsOf, type Attempt, type PacedOptions } from "./paced.js";

/** The part of a request of Crawlee that matters here. */
interface CrawleeRequest {
  url: string | URL;
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
}

interface CrawleeResponse {
  statusCode: number;
  headers: Record<string, string | string[] | undefined>;
}

/** An HTTP client of Crawlee, such as its `GotScrapingHttpClient`. */
interface HttpClient {
  // The generic parameters of Crawlee's interface are the caller's.
  sendRequest(request: never): Promise<CrawleeResponse & { body: unknown }>;
  stream(request: never, onRedirect?: never): Promise<CrawleeResponse & { stream: Readable }>;
}

/**
 * Returns an HTTP client for `new CheerioCrawler({ httpClient: polite(client, inner) })` of Crawlee
 * 3. Requests wait for their permits, are reported, and are sent again if the coordinator says so.
 * Crawlee's `navigationTimeoutSecs` includes the wait. Redirects that `inner` follows have no
 * permit of their own.
 */
export function polite<Inner extends HttpClient>(client: Client, inner: Inner, options: PacedOptions = {}): Inner {
  return {
    sendRequest: (request: CrawleeRequest) =>
      paced(client, request, options, async (attempt) => {
        const response = await inner.sendRequest(request as never);
        const isWhole = attempt.head(response.statusCode, pairsOf(response.headers));
        const { body } = response;
        if (typeof body === "string" || body instanceof Uint8Array) attempt.part(Buffer.from(body), isWhole);
        await attempt.end();
        return response;
      }),
    stream: (request: CrawleeRequest, onRedirect: unknown) =>
      paced(client, request, options, async (attempt) => {
        const response = await inner.stream(request as never, onRedirect as never);
        if (!attempt.head(response.statusCode, pairsOf(response.headers))) {
          attempt.bodyComes();
          client.carry(endOf(response.stream, attempt).then((error) => attempt.end(error)));
          return response;
        }
        const body = Buffer.concat(await response.stream.toArray());
        attempt.part(body, true);
        response.stream = Readable.from([body]);
        await attempt.end();
        return response;
      }),
  } as unknown as Inner;
}

/**
 * Sends a request until its answer is the caller's: one that needs no further attempt, or streams.
 */
function paced<T>(
  client: Client, { url, method = "GET", body, signal }: CrawleeRequest, options: PacedOptions,
  send: (attempt: Attempt) => Promise<T>,
): Promise<T> {
  return new Paced(client, String(url), method.toUpperCase(), options, body).send(send, signal);
}
