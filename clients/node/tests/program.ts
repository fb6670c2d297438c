// The program itself, on free ports of this machine: `POLITELY` names it.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

import type { Json } from "../src/wire.js";

const REPOSITORY = fileURLToPath(new URL("../../../../", import.meta.url));
export const PROGRAM = process.env.POLITELY ?? join(REPOSITORY, "target/debug/politely");

/** A `politely` process, and the first lines of its output. */
export class Program {
  private constructor(
    readonly process: ChildProcess,
    readonly lines: string[],
  ) {}

  static async start(t: TestContext, count: number, ...args: string[]): Promise<Program> {
    const env = { ...process.env };
    delete env.POLITELY_TOKEN;
    const child = spawn(PROGRAM, args, { stdio: ["ignore", "pipe", "pipe"], env });
    t.after(() => child.kill("SIGKILL"));
    const lines: string[] = [];
    for await (const line of createInterface({ input: child.stderr })) {
      if (lines.push(line) === count) break;
    }
    if (lines.length < count) throw new Error(`${PROGRAM} ${args.join(" ")} ended: ${lines.join("; ")}`);
    child.stderr.resume(); // a full pipe would block the process
    return new Program(child, lines);
  }

  /** Ends the process and returns its standard output. */
  async end(signal: NodeJS.Signals = "SIGINT"): Promise<string> {
    const parts: Buffer[] = [];
    this.process.stdout?.on("data", (part: Buffer) => parts.push(part));
    const ended = new Promise((resolve) => this.process.once("close", resolve));
    this.process.kill(signal);
    await ended;
    return Buffer.concat(parts).toString();
  }
}

/** Starts a coordinator and returns its URL with its process. */
export async function serve(t: TestContext, ...args: string[]): Promise<{ url: string; program: Program }> {
  const bind = args.includes("--bind") ? [] : ["--bind", "127.0.0.1:0"];
  const kept = args.includes("--state") ? [] : ["--memory"];
  const program = await Program.start(t, 1, "serve", ...bind, ...kept, ...args);
  const [, url] = /(http\S+)$/.exec(program.lines[0] ?? "") ?? [];
  if (!url) throw new Error(program.lines[0]);
  return { url, program };
}

/** Hosts with known limits. */
export async function town(t: TestContext, hosts: Record<string, Json>) {
  const spec = join(folder(t), "town.json");
  writeFileSync(
    spec,
    JSON.stringify({ hosts: Object.entries(hosts).map(([name, host]) => ({ name, ...host })) }),
  );
  const program = await Program.start(t, Object.keys(hosts).length, "target", spec, "--json");
  const urls = program.lines.map((line) => line.split(" ")[0] ?? "");
  const judge = async (): Promise<Json[]> => JSON.parse(await program.end()).hosts;
  return { urls, judge };
}

/** A provider that the program plays, and the file of its preset as a policy for this machine. */
export async function provider(t: TestContext, name: string) {
  const program = await Program.start(t, 1, "target", "--preset", name, "--json");
  const policy = join(folder(t), `${name}.toml`);
  const preset = readFileSync(join(REPOSITORY, "presets", `${name}.toml`), "utf8");
  writeFileSync(policy, preset.replaceAll(`api.${name}.com`, "127.0.0.1"));
  const judge = async (): Promise<Json> => JSON.parse(await program.end());
  return { url: program.lines[0]?.split(" ")[0] ?? "", policy, judge };
}

export function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), "politely-"));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}
