// Readers of the usage that APIs of language models state, for `used` and `Permit.settle`.
//
// A reader accepts an answer of the SDK, its usage, or the text or bytes of a body: JSON, or the
// events of a stream. Without a usage the result is empty, and the estimate counts. A stream that
// ended early states its input only, since the numbers of output in its first event are
// placeholders.
import type { Json } from "./wire.js";

/** The amounts of units that a request used, as `{ tokens: 340 }`. */
export type Used = Record<string, number>;
export type UsageReader = (answer: unknown) => Used;

/** Returns the tokens of a chat completion, a response or an embedding of OpenAI. */
export function openai(answer: unknown): Used {
  let found: Used = {};
  // In a stream, the last event with a usage counts (`stream_options: { include_usage: true }`).
  for (const { usage, event } of usagesIn(answer)) {
    const input = number(usage, "prompt_tokens", "input_tokens");
    const output = number(usage, "completion_tokens", "output_tokens") ?? 0;
    const total = number(usage, "total_tokens");
    if (total === undefined && input === undefined) continue;
    found = counted(input ?? 0, event && !output ? undefined : output, total);
  }
  return found;
}

/**
 * Returns the tokens of a message of Anthropic. Tokens that were read from a cache do not count
 * against the limit of input tokens; those that were written into it do.
 */
export function anthropic(answer: unknown): Used {
  let input: number | undefined, output: number | undefined;
  // In a stream, the largest number of each kind counts. `message_start` has a placeholder.
  for (const { usage, event } of usagesIn(answer)) {
    const base = number(usage, "input_tokens");
    const got = number(usage, "output_tokens");
    if (base !== undefined) {
      input = Math.max(input ?? 0, base + (number(usage, "cache_creation_input_tokens") ?? 0));
    }
    if (got !== undefined && event !== "message_start") output = Math.max(output ?? 0, got);
  }
  return input === undefined ? {} : counted(input, output);
}

/** Returns the tokens of an answer of Gemini. In a stream, the last event with a usage counts. */
export function gemini(answer: unknown): Used {
  let found: Used = {};
  for (const { usage, event } of usagesIn(answer)) {
    const input = number(usage, "promptTokenCount");
    if (input === undefined) continue;
    const output = number(usage, "candidatesTokenCount");
    const all = (output ?? 0) + (number(usage, "thoughtsTokenCount") ?? 0);
    found = counted(input, event && output === undefined ? undefined : all, number(usage, "totalTokenCount"));
  }
  return found;
}

function counted(input: number, output?: number, total?: number): Used {
  if (output === undefined) return { input_tokens: input };
  return { tokens: total ?? input + output, input_tokens: input, output_tokens: output };
}

/** Yields usage objects, each with the type of its event. The type is empty outside a stream. */
function* usagesIn(answer: unknown): Generator<{ usage: Json; event: string }> {
  if (typeof answer !== "string" && !(answer instanceof Uint8Array)) {
    yield { usage: usageOf(answer), event: "" };
    return;
  }
  const text = typeof answer === "string" ? answer : new TextDecoder().decode(answer);
  const events = eventsIn(text);
  for (const document of events.length ? events : [text]) {
    let read: unknown;
    try {
      read = JSON.parse(document);
    } catch {
      continue; // the end of a stream, or no JSON
    }
    yield { usage: usageOf(read), event: events.length ? String((Object(read) as Json).type ?? "chunk") : "" };
  }
}

/**
 * Returns the data of each event. Lines end at CR and LF only. Several lines of data are one text.
 */
function eventsIn(text: string): string[] {
  const events: string[] = [];
  let data: string[] = [];
  for (const line of [...text.split(/\r\n|\r|\n/), ""]) {
    if (line.startsWith("data:")) data.push(line.slice(5));
    else if (!line && data.length) {
      events.push(data.join("\n"));
      data = [];
    }
  }
  return events;
}

/** Returns the usage in an answer or an event, or the answer if it is a usage itself. */
function usageOf(answer: unknown): Json {
  const whole = Object(answer) as Json;
  for (const holder of [whole, whole.message, whole.response]) {
    const usage = holder?.usage ?? holder?.usageMetadata;
    if (usage) return usage;
  }
  return whole;
}

function number(usage: Json, ...names: string[]): number | undefined {
  return names.map((name) => usage[name]).find((value) => Number.isInteger(value) && value >= 0);
}
