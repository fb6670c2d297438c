// Repeated requests while the page is visible.

const WAIT_MAX_MS = 15_000;

/**
 * Calls `ask(signal)` now and `every` milliseconds after each answer, and `show` with the answer.
 *
 * A hidden page sends no requests. A new request aborts the one before, whose answer is never
 * shown. After a failure the pause doubles, and `failed` receives the problem.
 */
export function poll({ every, ask, show, failed }) {
  let newest = 0;
  let timer;
  let abort;
  let wait = every;

  function silence() {
    newest += 1;
    clearTimeout(timer);
    abort?.abort();
  }

  async function now() {
    silence();
    if (document.hidden) return;
    const mine = newest;
    abort = new AbortController();
    let answer;
    let problem;
    try {
      answer = await ask(abort.signal);
    } catch (error) {
      problem = error;
    }
    if (mine !== newest) return;
    wait = problem ? Math.min(wait * 2, WAIT_MAX_MS) : every;
    timer = setTimeout(now, wait);
    if (problem) failed(problem);
    else show(answer);
  }

  document.addEventListener("visibilitychange", now);
  now();
  return {
    now,
    stop() {
      document.removeEventListener("visibilitychange", now);
      silence();
    },
  };
}
