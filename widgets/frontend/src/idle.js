// Work that nobody waits for yet: done a piece at a time while the page has nothing else to do.

const soon = globalThis.requestIdleCallback ?? ((run) => setTimeout(run, 1));
const never = globalThis.cancelIdleCallback ?? clearTimeout;

/**
 * Run each task when the page is idle. Returns a function that forgets those not yet begun.
 *
 * @param {(() => void)[]} tasks
 */
export function whenIdle(tasks) {
  let next = 0;
  const step = () => {
    tasks[next++]();
    if (next < tasks.length) handle = soon(step);
  };
  let handle = tasks.length ? soon(step) : 0;
  return () => never(handle);
}
