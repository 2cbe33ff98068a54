import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { Agent, buildConnector, request } from 'undici';
import { decode, encode, toJSON } from './codec.js';
import { asHeader, longestDelay } from './queue.js';

const defaultConcurrency = 50;
const defaultSilenceMs = 600_000;
const waitSeconds = 20; // of a call that receives messages
const signMs = 5_000; // how often the main thread shows that it is there
const drainMs = 10_000; // how long stop waits for messages that are being handled

/**
 * @typedef {object} Delivery
 * @property {string} messageId
 * @property {string} queueName
 * @property {unknown} message
 * @property {Record<string, string>} [headers]
 * @property {number} attempt
 * @property {string} receipt
 * @property {number} [heldSeconds] how long the message is held
 */

/**
 * What becomes of a delivery.
 * @typedef {{ as: 'acknowledge' } | { as: 'retry', afterSeconds: number, uncounted?: boolean }} Outcome
 */

/**
 * Makes a worker, which takes the messages of one deployment and posts them to the app's endpoints.
 * @param {import('./client.js').Client} client
 * @param {import('./world.js').Options} options
 */
export function createWorker(client, options) {
  const most = options.concurrency ?? defaultConcurrency;
  const connector = buildConnector({});
  /** @type {WeakSet<Error>} */
  const unconnected = new WeakSet(); // why connections were not made: nobody has got what was to be sent
  // A step may compute for as long as it likes before its endpoint answers.
  const app = new Agent({
    headersTimeout: 0,
    bodyTimeout: 0,
    connections: most,
    connect: (to, made) =>
      connector(to, (...outcome) => {
        if (outcome[0]) unconnected.add(outcome[0]);
        made(...outcome);
      }),
  });
  const stopping = new AbortController();
  /** @type {Set<Promise<void>>} */
  const handling = new Set();
  let freed = () => {}; // called when a message has been handled
  /** @type {string | undefined} */
  let deploymentId;
  /** @type {ReturnType<typeof keep> | undefined} */
  let keeper;
  /** @type {Promise<void>} */
  let receiving = Promise.resolve();

  /** Throws if it is not known where the app is. */
  const check = () => void endpoint(options.appUrl, '');

  /** @param {string} deployment whose code this process has */
  async function start(deployment) {
    if (deploymentId || stopping.signal.aborted) return;
    deploymentId = deployment;
    keeper = keep(client, deployment, options.silenceMs ?? defaultSilenceMs);
    await keeper.ready;
    receiving = receive(keeper);
  }

  /** @param {ReturnType<typeof keep>} keeper */
  async function receive(keeper) {
    for (let failures = 0; !stopping.signal.aborted; ) {
      if (handling.size >= most) {
        // Promise.race would leave something with each promise, until that is settled.
        await new Promise((resolve) => (freed = () => resolve(undefined)));
        continue;
      }
      try {
        const body = encode({ deploymentId, max: most - handling.size, waitSeconds });
        const answer = await client.open('queue/receive', body, { signal: stopping.signal });
        const { messages } = decode(new Uint8Array(await answer.body.arrayBuffer()));
        for (const delivery of messages) {
          keeper.hold(delivery);
          const done = handle(delivery)
            .catch((err) => console.error(`[weft] message ${delivery.messageId} is delivered again: ${err}`))
            .finally(() => {
              keeper.release(delivery);
              handling.delete(done);
              freed();
            });
          handling.add(done);
        }
        if (failures > 0) console.error('[weft] messages are received again');
        failures = 0;
      } catch (err) {
        if (stopping.signal.aborted) return;
        if (failures++ === 0) console.error(`[weft] no messages are received, which is tried again: ${client.failure('queue/receive', err).message}`);
        await sleep(Math.min(5_000, 100 * 2 ** failures), undefined, { signal: stopping.signal }).catch(() => {});
      }
    }
  }

  /** @param {Delivery} delivery */
  async function handle(delivery) {
    const outcome = await post(delivery);
    const { messageId, receipt } = delivery;
    await client.call('queue/settle', { deploymentId, settlements: [{ messageId, receipt, ...outcome }] }, { patient: true });
  }

  /**
   * Posts a message to the app, and returns what becomes of it.
   * @param {Delivery} delivery
   * @returns {Promise<Outcome>}
   */
  async function post(delivery) {
    const again = /** @type {const} */ ({ as: 'retry', afterSeconds: Math.min(60, 2 ** (delivery.attempt - 1)) });
    let body, answer, text;
    try {
      body = toJSON(delivery.message, Number); // integers of 8 bytes come as bigints
      answer = await request(endpoint(options.appUrl, delivery.queueName), {
        method: 'POST',
        headers: {
          ...lowered(delivery.headers),
          'content-type': 'application/json',
          'x-vqs-queue-name': asHeader(delivery.queueName),
          'x-vqs-message-id': delivery.messageId,
          'x-vqs-message-attempt': String(delivery.attempt),
        },
        body,
        dispatcher: app,
      });
      text = await answer.body.text();
    } catch (err) {
      if (body === undefined || /** @type {any} */ (err).code === 'UND_ERR_INVALID_ARG') {
        console.error(`[weft] message ${delivery.messageId}, attempt ${delivery.attempt}, cannot be posted: ${err}`);
        return again;
      }
      if (!stopping.signal.aborted) console.error(`[weft] the app has not answered message ${delivery.messageId}: ${err}`);
      // A runtime takes attempt 1 for the first delivery, and executes steps without a look at the log.
      return unconnected.has(/** @type {Error} */ (err)) ? { as: 'retry', afterSeconds: 1, uncounted: true } : again;
    }
    if (answer.statusCode < 200 || answer.statusCode > 299) {
      console.error(`[weft] message ${delivery.messageId}, attempt ${delivery.attempt}: HTTP ${answer.statusCode}: ${text.slice(0, 500)}`);
      return again;
    }
    const seconds = timeoutOf(text);
    return seconds === undefined ? { as: 'acknowledge' } : { as: 'retry', afterSeconds: seconds, uncounted: true };
  }

  /** Takes no more messages, and waits a little for those that are being handled. */
  async function stop() {
    stopping.abort();
    const handled = receiving.then(() => Promise.all(handling));
    await Promise.race([handled, sleep(drainMs, undefined, { ref: false })]);
    await keeper?.stop();
    await app.destroy();
  }

  return { check, start, stop, deploymentId: () => deploymentId };
}

/**
 * Returns where messages of a queue are posted to. The port is that of the app now: it may get one after the world was made.
 * @param {string | undefined} appUrl
 * @param {string} queueName
 */
export function endpoint(appUrl, queueName) {
  const { WEFT_APP_URL, PORT } = process.env;
  if (!appUrl && !WEFT_APP_URL && !PORT) {
    throw new Error('@weft-go/world: it is not known where to post messages: set PORT to the port of this app, or WEFT_APP_URL to its URL');
  }
  const base = appUrl || WEFT_APP_URL || `http://localhost:${PORT}`;
  const kind = /^__(?:[a-z][a-z0-9]*_)?wkf_step_/.test(queueName) ? 'step' : 'flow';
  return `${base.replace(/\/*$/, '')}/.well-known/workflow/v1/${kind}`;
}

/**
 * Returns headers with their names in lower case, so that none is there beside one of the worker.
 * @param {Record<string, string>} [headers]
 */
function lowered(headers = {}) {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

/**
 * Returns after how many seconds a handler wants its message again, if it does.
 * @param {string} text its answer
 * @returns {number | undefined}
 */
function timeoutOf(text) {
  try {
    const { timeoutSeconds } = JSON.parse(text);
    return Number.isFinite(timeoutSeconds) && timeoutSeconds >= 0 ? Math.min(timeoutSeconds, longestDelay) : undefined;
  } catch {
    return undefined; // it is no JSON, or no object
  }
}

/**
 * Starts the thread that keeps deliveries while the main thread may be computing.
 * @param {import('./client.js').Client} client
 * @param {string} deploymentId
 * @param {number} silenceMs
 */
function keep(client, deploymentId, silenceMs) {
  const { url, token, spec } = client.options;
  const thread = new Worker(new URL('./keeper.js', import.meta.url), {
    workerData: { url, token, spec, deploymentId, silenceMs },
  });
  thread.unref();
  thread.on('error', (err) => console.error(`[weft] long steps may be executed twice, since the thread that keeps their messages has ended: ${err}`));
  const ready = new Promise((resolve) => thread.once('message', resolve).once('exit', resolve));
  const sign = setInterval(() => thread.postMessage({ kind: 'sign' }), Math.min(signMs, silenceMs / 4));
  sign.unref();
  return {
    ready,
    /** @param {Delivery} delivery */
    hold: ({ messageId, receipt, heldSeconds }) => thread.postMessage({ kind: 'hold', messageId, receipt, heldSeconds }),
    /** @param {Delivery} delivery */
    release: ({ receipt, messageId }) => thread.postMessage({ kind: 'release', messageId, receipt }),
    async stop() {
      clearInterval(sign);
      await thread.terminate();
    },
  };
}
