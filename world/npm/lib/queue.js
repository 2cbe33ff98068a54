import { randomUUID } from 'node:crypto';
import { fromJSON, toJSON } from './codec.js';

/** The longest delay that the server takes. A message that comes too early is put off again by the runtime. */
export const longestDelay = 365 * 24 * 3600;

/**
 * Returns the name of a queue as a header has it. What is no visible character of ASCII is percent-encoded.
 * @param {string} queueName
 */
export function asHeader(queueName) {
  return queueName.replace(/[^!-$&-~]+/gu, encodeURIComponent);
}

/**
 * Publishes a message to the queue of a deployment: the one that the options name, else the one that own says,
 * else the active one.
 * @param {import('./client.js').Client} client
 * @param {() => string | undefined} own
 */
export function createPublish(client, own) {
  /**
   * @param {string} queueName
   * @param {unknown} message
   * @param {import('@workflow/world').QueueOptions} [opts]
   */
  return async (queueName, message, opts = {}) => {
    // What cannot be posted later is refused now.
    toJSON(message);
    new Headers(opts.headers);
    const body = {
      queueName,
      message,
      opts: {
        deploymentId: opts.deploymentId ?? own(),
        // With a key, a call that is made again publishes once.
        idempotencyKey: opts.idempotencyKey ?? randomUUID(),
        headers: opts.headers,
        delaySeconds: opts.delaySeconds && Math.min(opts.delaySeconds, longestDelay),
      },
    };
    const { messageId } = await client.call('queue/publish', body, { named: true });
    return { messageId };
  };
}

/**
 * Makes the handler of an endpoint to which a worker posts messages.
 * @param {string} prefix of the names of queues that it handles
 * @param {(message: unknown, meta: { attempt: number, queueName: any, messageId: any }) => Promise<unknown>} handler
 * @returns {(req: Request) => Promise<Response>}
 */
export function createQueueHandler(prefix, handler) {
  return async (req) => {
    const header = req.headers.get('x-vqs-queue-name');
    const messageId = req.headers.get('x-vqs-message-id');
    const attempt = Number(req.headers.get('x-vqs-message-attempt'));
    if (!header || !messageId || !(attempt >= 1)) {
      return Response.json({ error: 'The headers x-vqs-queue-name, x-vqs-message-id and x-vqs-message-attempt are required' }, { status: 400 });
    }
    let queueName = header;
    try {
      queueName = decodeURIComponent(header);
    } catch {
      // It is not from a worker of this package.
    }
    if (!queueName.startsWith(prefix)) {
      return Response.json({ error: `This endpoint handles queues whose names begin with ${prefix}, not ${queueName}` }, { status: 400 });
    }
    /** @type {unknown} */
    let message;
    try {
      message = fromJSON(await req.text());
    } catch (err) {
      return Response.json({ error: `The body is no JSON: ${err}` }, { status: 400 });
    }
    try {
      const result = /** @type {any} */ (await handler(message, { attempt, queueName, messageId }));
      const seconds = result?.timeoutSeconds;
      return Response.json(typeof seconds === 'number' ? { timeoutSeconds: seconds } : { ok: true });
    } catch (err) {
      return Response.json({ error: String(err) }, { status: 500 });
    }
  };
}
