import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, request } from 'undici';
import { decode, encode } from './codec.js';
import { refusal, unanswered } from './errors.js';

/**
 * Reports whether a call may succeed when it is made again. It may have been executed already.
 * @param {{ status?: number, code?: string }} err
 */
export function passing(err) {
  return err.code === 'TRANSPORT' || [500, 502, 503, 504].includes(err.status ?? 0);
}

/**
 * Returns what an answer has. A control plane answers some calls itself, and refuses all of them itself, in JSON.
 * @param {Uint8Array} body
 * @param {import('node:http').IncomingHttpHeaders} headers
 */
function valueOf(body, headers) {
  const isJSON = /^application\/(problem\+)?json\b/.test(headers['content-type'] ?? '');
  return isJSON ? JSON.parse(Buffer.from(body).toString()) : decode(body);
}

/**
 * @param {Uint8Array} body of an answer that refuses a call
 * @param {import('node:http').IncomingHttpHeaders} headers
 * @param {number} status
 * @returns {import('./errors.js').Problem}
 */
function problemOf(body, headers, status) {
  const retryAfter = Number(headers['retry-after']) || undefined;
  try {
    const problem = valueOf(body, headers);
    if (typeof problem?.message === 'string') return { retryAfter, ...problem };
  } catch {
    // It is neither from the world's routes nor from a control plane.
  }
  return { code: 'http', message: `HTTP ${status}: ${Buffer.from(body).toString().slice(0, 200)}`, retryAfter };
}

/**
 * @typedef {object} ClientOptions
 * @property {string} url of the server, such as http://localhost:4650
 * @property {string} [token] of the control plane
 * @property {number} spec the version of the interface
 * @property {import('./errors.js').Classes} classes
 * @property {number} [retryMs] how long a call is tried again; 20 s if it is not given
 */

/**
 * @typedef {object} CallOptions
 * @property {boolean} [named] the call has a name, so that the server recognizes it when it comes again
 * @property {boolean} [patient] waits, too, if the server says that there are too many calls
 * @property {Partial<import('./errors.js').Subject>} [about]
 * @property {number} [retryMs]
 */

/** A Client calls a Weft server. Calls that get no answer are made again, under the same name. */
export class Client {
  /** @param {ClientOptions} options */
  constructor(options) {
    this.options = options;
    this.base = new URL(options.url.replace(/\/*$/, '/v1/world/'));
    this.agent = new Agent({ keepAliveTimeout: 10_000, headersTimeout: 60_000, bodyTimeout: 60_000, connections: 128 });
    // Calls that wait for something take no connection from the others.
    this.waiting = new Agent({ keepAliveTimeout: 10_000, headersTimeout: 60_000, bodyTimeout: 0 });
    // That of a stream may have nothing to tell for as long as it is open.
    this.reading = new Agent({ keepAliveTimeout: 10_000, headersTimeout: 0, bodyTimeout: 0 });
    this.closed = new AbortController();
    setMaxListeners(0, this.closed.signal); // each call is one
  }

  /**
   * Makes a call, and returns what is answered.
   * @param {string} path behind /v1/world/
   * @param {unknown} [body] nothing: it is a GET
   * @param {CallOptions} [options]
   * @returns {Promise<any>}
   */
  async call(path, body, { named, patient, about, retryMs = this.options.retryMs ?? 20_000 } = {}) {
    const until = performance.now() + retryMs;
    const stop = this.closed.signal;
    const payload = body === undefined ? undefined : encode(body); // once: what cannot be encoded is no failure of the server
    /** @type {Record<string, string>} */
    const headers = named ? { 'weft-request': randomUUID() } : {};
    for (let attempt = 0; ; attempt++) {
      let failure;
      try {
        const answer = await this.open(path, payload, { headers, signal: stop, about });
        return valueOf(new Uint8Array(await answer.body.arrayBuffer()), answer.headers); // what is cut counts as no answer
      } catch (err) {
        if (stop.aborted) throw err;
        failure = this.failure(path, err);
        if (!passing(failure) && !(patient && failure.status === 429)) throw failure;
      }
      const pause = Math.max(1000 * (failure.retryAfter ?? 0), Math.min(2000, 50 * 2 ** attempt) * (0.5 + Math.random() / 2));
      if (performance.now() + pause > until) throw failure;
      await sleep(pause, undefined, { signal: stop });
      if (named) headers['weft-retry'] = '1';
    }
  }

  /**
   * Makes a call once, and returns the answer, whose body may still be coming. It throws if the call is refused.
   * @param {string} path
   * @param {Uint8Array | undefined} payload CBOR; nothing: it is a GET
   * @param {{ headers?: Record<string, string>, signal: AbortSignal, about?: CallOptions['about'] }} options
   */
  async open(path, payload, { headers, signal, about }) {
    const { token, spec, classes } = this.options;
    const url = new URL(path, this.base);
    const answer = await request(url, {
      method: payload ? 'POST' : 'GET',
      headers: {
        ...headers,
        accept: 'application/cbor',
        'weft-spec': String(spec),
        ...(payload && { 'content-type': 'application/cbor' }),
        ...(token && { authorization: `Bearer ${token}` }),
      },
      body: payload,
      dispatcher: path === 'streams/read' ? this.reading : path === 'queue/receive' ? this.waiting : this.agent,
      signal,
    });
    if (answer.statusCode === 200) return answer;
    const problem = problemOf(new Uint8Array(await answer.body.arrayBuffer()), answer.headers, answer.statusCode);
    throw refusal(classes, answer.statusCode, problem, { ...about, spec }, String(url));
  }

  /**
   * @param {string} path
   * @param {unknown} err
   * @returns {any}
   */
  failure(path, err) {
    const { classes } = this.options;
    return err instanceof classes.WorkflowError ? err : unanswered(classes, path, err, String(new URL(path, this.base)));
  }

  /** Ends all calls. */
  async close() {
    this.closed.abort();
    await Promise.all([this.agent.destroy(), this.waiting.destroy(), this.reading.destroy()]);
  }
}
