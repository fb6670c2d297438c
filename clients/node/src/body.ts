import type { Readable } from "node:stream";

import type { Attempt } from "./paced.js";

/** Takes the parts of a body, and once its end, its error or its being given up. */
export interface Watcher {
  part(bytes: Uint8Array): void;
  end(error?: unknown): void;
}

/** Closes the bodies that were dropped unread, so that their slots are freed. */
const dropped = new FinalizationRegistry<() => void>((close) => close());

/** Returns the response with a body that is watched. */
export function watched(response: Response, watcher: Watcher): Response {
  const reader = response.body?.getReader();
  if (!reader) return response;
  const body = new ReadableStream(
    {
      type: "bytes",
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) {
            watcher.end();
            controller.close();
            controller.byobRequest?.respond(0);
          } else if (value.length) {
            watcher.part(value);
            controller.enqueue(value);
          }
        } catch (error) {
          watcher.end(error);
          controller.error(error);
        }
      },
      async cancel(reason) {
        watcher.end();
        await reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  dropped.register(body, () => {
    watcher.end();
    reader.cancel().catch(() => undefined);
  });
  return remade(response, body, response.url);
}

/** Returns a response with another body. */
export function remade(response: Response, body: Uint8Array | ReadableStream, url: string): Response {
  const { status, statusText, headers } = response;
  const made = new Response(body, { status, statusText, headers });
  return Object.defineProperty(made, "url", { value: url });
}

/**
 * Watches the parts of a stream before its reader gets them. Returns its error, if it has one, at
 * its end.
 */
export function endOf(stream: Readable, attempt: Attempt, isWhole = false): Promise<unknown> {
  const push = stream.push.bind(stream);
  return new Promise((resolve) => {
    stream.push = (part: Uint8Array | null, encoding) => {
      if (part) attempt.part(part, isWhole);
      else resolve(undefined);
      return push(part, encoding);
    };
    stream.once("error", resolve);
    stream.once("close", resolve);
  });
}
