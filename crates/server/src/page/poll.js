// Asking again and again, but only while somebody looks.

const WAIT_MAX_MS = 15_000;

/**
 * Calls `ask(signal)` now and `every` milliseconds after each answer, and `show` with what came.
 *
 * Nothing is asked while the page is hidden. A question that was overtaken by a newer one is aborted and its answer never
 * shown. After a failure the pause doubles; `failed` hears of it.
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
