/** Base class of the errors of this package. */
export class PolitelyError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/**
 * No permit will be granted: the key is parked, its queue is full, or there is no room for another
 * key.
 */
export class Refused extends PolitelyError {
  constructor(
    /** `parked`, `full`, `queue_full`, `id_used` or `closing`. */
    readonly code: string,
    readonly reason: string,
    /** Milliseconds until the answer may change, if the coordinator knows. */
    readonly retryInMs?: number,
  ) {
    super(retryInMs === undefined ? reason : `${reason}; ask again in ${retryInMs / 1000} s`);
  }
}

/** No permit was granted within the caller's time. */
export class TimedOut extends PolitelyError {
  constructor(
    /** The cause of the wait, such as `pace`, `in flight` or `hold, Retry-After`. */
    readonly reason: string,
    /** Milliseconds until a new call is useful. */
    readonly retryInMs = 0,
    /** The number of requests before this one in the key's queue. */
    readonly position = 0,
  ) {
    super(`no permit in time: ${reason}`);
  }
}

/**
 * The coordinator did not answer within the caller's time. No permit was granted, so nothing may be
 * sent.
 */
export class Unavailable extends TimedOut {
  constructor(why: string) {
    super(`the coordinator is unavailable: ${why}`);
  }
}

/** The permit was not used while it was valid, and was given back. Acquire another. */
export class TooLate extends PolitelyError {}

/** The permit's lease has ended and its slot is free for another request. Abort the request. */
export class LeaseLost extends PolitelyError {}

/** The lock has ended, and another session may hold the key. Stop the work on it. */
export class LockLost extends PolitelyError {}

/**
 * The coordinator does not accept the call, or can never be called with these settings: a wrong
 * field, a wrong token, or an untrusted certificate. A retry does not help.
 */
export class BadCall extends PolitelyError {
  constructor(
    readonly detail: string,
    readonly field?: string,
    /** Status of the answer, or 0 if the call did not reach a coordinator. */
    readonly status = 400,
  ) {
    super(field === undefined ? detail : `${field}: ${detail}`);
  }
}
