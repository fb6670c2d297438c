/** The error of a job that the limiter failed, and of a wrong use of the limiter. */
export class BottleneckError extends Error {
  override name = "BottleneckError";
}
