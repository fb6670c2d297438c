/** The error of a job that the limiter failed, and of a wrong use of the limiter. */
export class BottleneckError extends Error {
  override name = "BottleneckError";
}

/** Returns what to write instead of an option of Bottleneck that names Redis. */
export function redisAdvice(option: string): string {
  return (
    `${option}: limits are not kept in Redis; write datastore: "politely", ` +
    "and set POLITELY_COORDINATOR to the address of `politely serve`"
  );
}
