// A thread that extends the time for which the main thread holds messages: that may be computing for longer.
import * as classes from '@workflow/errors';
import { parentPort, workerData } from 'node:worker_threads';
import { Client } from './client.js';

/** @type {{ url: string, token?: string, spec: number, deploymentId: string, silenceMs: number }} */
const { deploymentId, silenceMs, ...options } = workerData;
const client = new Client({ ...options, classes });

/** @type {Map<string, { messageId: string, receipt: string, everyMs: number }>} by message and receipt */
const held = new Map();
let dueAt = Infinity; // when the timer has extend called
/** @type {NodeJS.Timeout | undefined} */
let timer;
let lastSign = performance.now();

const shortestMs = 200; // between two extensions
const longestMs = 600_000;
const unknownSeconds = 6; // how long a message is taken to be held if the server does not say it

/**
 * Returns after what time a message is to be extended.
 * @param {unknown} heldSeconds what the server says
 */
function every(heldSeconds) {
  const known = typeof heldSeconds === 'number' && Number.isFinite(heldSeconds) && heldSeconds >= 0;
  return Math.min(longestMs, Math.max(shortestMs, ((known ? heldSeconds : unknownSeconds) * 1000) / 3));
}

parentPort?.on('message', ({ kind, messageId, receipt, heldSeconds }) => {
  lastSign = performance.now();
  const key = `${messageId} ${receipt}`;
  if (kind === 'release') held.delete(key);
  if (kind !== 'hold') return;
  held.set(key, { messageId, receipt, everyMs: every(heldSeconds) });
  schedule();
});
parentPort?.postMessage('ready');

/** The shortest time after which a message that is held is to be extended. */
const shortest = () => Math.min(...[...held.values()].map(({ everyMs }) => everyMs));

/** Has extend called after the shortest time, unless it is due earlier: a new message must not delay the extension of others. */
function schedule() {
  if (held.size === 0) return;
  const everyMs = shortest();
  const at = performance.now() + everyMs;
  if (at >= dueAt) return;
  dueAt = at;
  clearTimeout(timer);
  timer = setTimeout(extend, everyMs);
}

async function extend() {
  dueAt = Infinity;
  schedule();
  if (performance.now() - lastSign > silenceMs) held.clear(); // the main thread hangs: others may have its messages
  const retryMs = shortest();
  const all = [...held];
  for (let i = 0; i < all.length; i += 1000) {
    const some = all.slice(i, i + 1000);
    const settlements = some.map(([, { messageId, receipt }]) => ({ messageId, receipt, as: 'extend' }));
    try {
      const { results } = await client.call('queue/settle', { deploymentId, settlements }, { retryMs });
      some.forEach(([key, message], n) => {
        if (results[n]?.code === 'lost') held.delete(key);
        if (results[n]?.heldSeconds !== undefined) message.everyMs = every(results[n].heldSeconds);
      });
      schedule(); // it may be shorter now
    } catch (err) {
      // Another process has it. After any other error they are extended the next time.
      if (/** @type {any} */ (err)?.code === 'lost') held.delete(some[0][0]);
    }
  }
}
