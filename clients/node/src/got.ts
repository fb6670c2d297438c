import * as http from "node:http";
import * as https from "node:https";

import type { BeforeRequestHook, ExtendOptions, Options, RequestFunction, RetryFunction } from "got";

import { endOf } from "./body.js";
import type { Client } from "./client.js";
import { Paced, pairsOf, type Attempt, type PacedOptions } from "./paced.js";
import type { Next } from "./wire.js";

/** The request under way with these options, and the next step once its answer is reported. */
interface Sending {
  paced: Paced;
  next?: Promise<Next | undefined>;
  inner: RequestFunction | undefined;
}

/**
 * Returns settings for got 14 or later, for `got.extend(polite(client))`. Each attempt and each
 * redirect waits for a permit of its own. The coordinator's directions replace got's rules of
 * retries; a body that is a stream is not sent again. A `timeout` of got does not include the wait.
 */
export function polite(client: Client, options: PacedOptions = {}): ExtendOptions {
  // By the function that sends: got copies the options of a request for each attempt.
  const sendings = new WeakMap<RequestFunction, Sending>();
  const sendingOf = (request: Pick<Options, "request">) => request.request && sendings.get(request.request);

  const beforeRequest: BeforeRequestHook = async (request, { retryCount }) => {
    const url = String(request.url);
    const before = sendingOf(request);
    const isRetry = retryCount > 0 && before?.paced.url === url;
    const paced = isRetry ? before.paced : new Paced(client, url, request.method, options, bodyOf(request));
    const sending: Sending = { paced, inner: before ? before.inner : request.request };
    const attempt = await paced.begin(request.signal);
    const send: RequestFunction = async (target, native, callback) => {
      const { request: plain } = target.protocol === "https:" ? https : http;
      const sent = (await sending.inner?.(target, native, callback)) ?? plain(target, native, callback);
      sending.next = reported(sent as http.ClientRequest, attempt, request.signal);
      client.carry(sending.next);
      return sent;
    };
    sendings.set(send, sending);
    request.request = send;
  };

  /** Returns the milliseconds until the next attempt, or undefined if there is none. */
  const pauseMs = async (request: Pick<Options, "request">): Promise<number | undefined> => {
    const sending = sendingOf(request);
    const next = await sending?.next;
    return next && sending?.paced.canRepeat ? sending.paced.attempts.pauseMs() : undefined;
  };

  const calculateDelay: RetryFunction = async ({ error, computedValue }) => {
    if (error.code === "ERR_RETRYING") return computedValue; // of `sendAgain`
    const pause = await pauseMs(error.options);
    return pause === undefined ? 0 : Math.max(1, pause); // 0 ends the request
  };

  return {
    hooks: {
      beforeRequest: [beforeRequest],
      afterResponse: [
        async (response, sendAgain) => {
          // A refusal with a status of success, which a rule of the coordinator found.
          const pause = response.ok ? await pauseMs(response.request.options) : undefined;
          if (pause === undefined) return response;
          await client.sleep(pause, response.request.options.signal);
          return sendAgain({});
        },
      ],
    },
    retry: { calculateDelay },
  };
}

/**
 * Reports what comes of a request, and returns the next step at the end of its body or its error.
 */
async function reported(
  sent: http.ClientRequest, attempt: Attempt, signal: AbortSignal | undefined,
): Promise<Next | undefined> {
  attempt.permit.signal.addEventListener("abort", () => sent.destroy(attempt.permit.signal.reason));
  const answer = await new Promise<{ end: Promise<unknown> } | Error>((resolve) => {
    sent.once("response", (response) => resolve({ end: answered(response, attempt) }));
    sent.once("error", resolve);
    sent.once("close", () => resolve(new Error("the request was given up")));
  });
  if (answer instanceof Error) return attempt.failed(signal?.aborted ? signal.reason : answer);
  return attempt.end(await answer.end);
}

/** Takes the head of an answer. Returns the error of its body, if it has one, at its end. */
function answered(response: http.IncomingMessage, attempt: Attempt): Promise<unknown> {
  const { statusCode = 0, headers } = response;
  const isWhole = attempt.head(statusCode, pairsOf(headers), headers["content-encoding"]);
  if (!isWhole) attempt.bodyComes();
  return endOf(response, attempt, isWhole);
}

/** Returns the body as it is sent. */
function bodyOf({ body, json }: Pick<Options, "body" | "json">): unknown {
  return body ?? (json === undefined ? undefined : JSON.stringify(json));
}
