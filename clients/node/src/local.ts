// The user's own coordinator on this machine, for clients without the URL of one. The program
// `politely local` starts it if it does not run, and prints its address. All processes of the user
// share it, and it ends some minutes after the last call.
import { execFile } from "node:child_process";

import { BadCall } from "./errors.js";

/** Minimum time between two runs of the program. */
const RUN_EVERY_MS = 1_000;
/** Maximum time of a run. The program itself gives up earlier. */
const RUN_TAKES_MAX_MS = 30_000;
const OTHERWISE = "or name a coordinator with the option url or POLITELY_COORDINATOR";

/** The URL of the API of a coordinator, and its token if the client does not have it. */
export interface Place {
  readonly url: string;
  readonly token?: string | undefined;
}

/** Finds the local coordinator, and finds it again after it did not answer. */
export class Local {
  #found: Promise<Place> | undefined;
  #place: Place | undefined;
  #isLost = false;
  #ranMs = -Infinity;
  /** Why the program failed to start the coordinator again. */
  trouble = "";

  /** Returns the place. Throws a `BadCall` if the program fails and no place is known. */
  find(): Promise<Place> {
    const isDue = this.#isLost && performance.now() >= this.#ranMs + RUN_EVERY_MS;
    if (!this.#found || isDue) {
      this.#ranMs = performance.now();
      this.#isLost = false;
      this.#found = this.#run();
    }
    return this.#found;
  }

  /** Notes that the coordinator at `place` did not answer. */
  lost(place: Place): void {
    if (place === this.#place) this.#isLost = true;
  }

  async #run(): Promise<Place> {
    try {
      this.#place = await started();
      this.trouble = "";
    } catch (why) {
      if (!this.#place) {
        this.#found = undefined;
        throw why;
      }
      // It may be a passing failure.
      this.trouble = (why as Error).message;
      this.#isLost = true;
    }
    return this.#place;
  }
}

/** Runs the program and returns the coordinator that it names. */
async function started(): Promise<Place> {
  const program = process.env.POLITELY_PROGRAM || "politely";
  const said = await new Promise<string>((resolve, reject) => {
    const child = execFile(program, ["local"], { timeout: RUN_TAKES_MAX_MS }, (error, out, err) => {
      if (!error) return resolve(out);
      const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
      const why = isMissing
        ? `no coordinator is named, and there is no program ${program}: install it, set POLITELY_PROGRAM`
        : `${program} local: ${err.trim().replace(/^error: /, "") || error.message}; correct this`;
      reject(new BadCall(`${why}, ${OTHERWISE}`, undefined, 0));
    });
    child.stdin?.end();
  });
  try {
    const { address, token } = JSON.parse(said) as { address: string; token: string };
    return { url: `${address}/api/v1`, token };
  } catch {
    throw new BadCall(`${program} local: its answer is no JSON; update it, ${OTHERWISE}`, undefined, 0);
  }
}
