// A host of this machine whose answers are given, one after the other.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

export interface Host {
  url: string;
  /** The methods, paths and bodies of all requests. */
  requests: { method: string; path: string; body: string; headers: IncomingMessage["headers"] }[];
}

/** Returns a handler that answers with a status, a text and headers. */
export function says(status: number, text = "", headers: Record<string, string> = {}): Handler {
  return (_, response) => response.writeHead(status, headers).end(text);
}

/** Breaks the connection instead of an answer. */
export const breaks: Handler = (request) => request.socket.destroy();

/** Starts a host for one test. The last handler answers all further requests. */
export async function host(t: TestContext, ...handlers: Handler[]): Promise<Host> {
  const requests: Host["requests"] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    const { method = "", url: path = "", headers } = request;
    const handler = (handlers.length > 1 ? handlers.shift() : handlers[0]) ?? says(200);
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      requests.push({ method, path, body: Buffer.concat(parts).toString(), headers });
      handler(request, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/x`, requests };
}
