// A thread that extends the time for which the main thread holds messages: that may be computing for longer.
import * as classes from '@workflow/errors';
import { parentPort, workerData } from 'node:worker_threads';
import { Client } from './client.js';

/** @type {{ url: string, token?: string, spec: number, deploymentId: string, silenceMs: number }} */
const { deploymentId, silenceMs, ...options } = workerData;
const client = new Client({ ...options, classes });

/** @type {Map<string, { messageId: string, receipt: string }>} by message and receipt */
const held = new Map();
let everyMs = Infinity;
/** @type {NodeJS.Timeout | undefined} */
let timer;
let lastSign = performance.now();

parentPort?.on('message', ({ kind, messageId, receipt, everyMs: every }) => {
  lastSign = performance.now();
  const key = `${messageId} ${receipt}`;
  if (kind === 'release') held.delete(key);
  if (kind !== 'hold') return;
  held.set(key, { messageId, receipt });
  if (every === everyMs) return;
  everyMs = every;
  clearInterval(timer);
  timer = setInterval(extend, everyMs);
});
parentPort?.postMessage('ready');

async function extend() {
  if (performance.now() - lastSign > silenceMs) held.clear(); // the main thread hangs: others may have its messages
  const all = [...held];
  for (let i = 0; i < all.length; i += 1000) {
    const some = all.slice(i, i + 1000);
    const settlements = some.map(([, delivery]) => ({ ...delivery, as: 'extend' }));
    try {
      const { results } = await client.call('queue/settle', { deploymentId, settlements }, { retryMs: everyMs });
      some.forEach(([key], n) => results[n]?.code === 'lost' && held.delete(key));
    } catch (err) {
      // Another process has it. After any other error they are extended the next time.
      if (/** @type {any} */ (err)?.code === 'lost') held.delete(some[0][0]);
    }
  }
}
