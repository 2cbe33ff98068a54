import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicFactory } from 'ulid';
import { Client, passing } from './client.js';
import { createPublish, createQueueHandler } from './queue.js';
import { createStreams } from './streams.js';
import { createWorker } from './worker.js';

const newULID = monotonicFactory();

/** The versions of the interface that the server knows. */
const oldest = 2;
const newest = 7;

/** How long start waits for the server. Then it returns, and goes on in the background. */
const patienceMs = 2_000;

/** From this version on event ids are positions, and a list of events without a limit is whole. */
const positions = 6;

/** The first version of 5.x. What earlier ones call `none` leaves out all of an event's data. */
const payloadsOnly = 4;

/**
 * @typedef {object} Options Each has an environment variable, which holds if it is not given.
 * @property {string} [url] WEFT_WORLD_URL: of the server
 * @property {string} [token] WEFT_WORLD_TOKEN: a key of the control plane
 * @property {string} [deploymentId] WEFT_DEPLOYMENT: whose code this process has
 * @property {string} [appUrl] WEFT_APP_URL: where the endpoints of workflows are; http://localhost:$PORT otherwise
 * @property {number} [concurrency] how many messages are handled at the same time; 50
 * @property {number} [retryMs] how long a call without an answer is made again; 20,000
 * @property {number} [silenceMs] after which time without a sign of the main thread its messages are given up; 600,000
 */

/**
 * A page, as the server answers it.
 * @template T
 * @typedef {{ data: T[], cursor: string | null, hasMore: boolean, tail: string }} Page
 */

/**
 * Makes a world for the version of the interface that a runtime has.
 * @param {number} specVersion SPEC_VERSION_CURRENT of the interface
 * @param {import('./errors.js').Classes} classes of the runtime's errors
 * @param {Options} options
 */
export function makeWorld(specVersion, classes, options) {
  if (!(Number.isInteger(specVersion) && specVersion >= oldest && specVersion <= newest)) {
    throw new Error(
      `@weft-go/world: @workflow/world has the interface version ${specVersion}, and this package knows ${oldest} to ${newest}: install another version of one of them`,
    );
  }
  const url = options.url ?? process.env.WEFT_WORLD_URL;
  if (!url || !URL.canParse(url) || !/^https?:/.test(url)) {
    throw new Error(`@weft-go/world: WEFT_WORLD_URL is the URL of a Weft server, such as http://localhost:4650, got ${JSON.stringify(url)}`);
  }
  const client = new Client({
    url,
    token: options.token ?? process.env.WEFT_WORLD_TOKEN,
    spec: specVersion,
    classes,
    retryMs: options.retryMs,
  });
  const deploymentId = options.deploymentId ?? process.env.WEFT_DEPLOYMENT;
  const worker = createWorker(client, { ...options, url, deploymentId });
  const own = () => deploymentId || worker.deploymentId();

  /**
   * @param {number} [retryMs]
   * @returns {Promise<string>} the active deployment
   */
  const active = async (retryMs) => (await client.call('deployment-id', undefined, { retryMs })).deploymentId;

  /** Starts the worker as soon as the server is there. */
  async function startLater() {
    try {
      for (;;) {
        await sleep(1000, undefined, { signal: client.closed.signal });
        const deployment = await active().catch((err) => {
          if (!passing(err)) throw err;
        });
        if (deployment === undefined) continue;
        await worker.start(deployment);
        return console.error('[weft] the server is there, and the worker has started');
      }
    } catch (err) {
      if (!client.closed.signal.aborted) console.error(`[weft] the worker has not started, so no messages are handled: ${err}`);
    }
  }

  const streams = createStreams(client);

  /** @param {string | undefined} resolveData */
  const withoutPayloads = (resolveData) => (resolveData === 'none' ? 'meta' : resolveData);

  /** @param {string | undefined} resolveData of events */
  const ofEvents = (resolveData) => (specVersion >= payloadsOnly ? withoutPayloads(resolveData) : resolveData);

  /**
   * @param {string} path
   * @param {Record<string, unknown>} body
   * @param {import('./client.js').CallOptions['about']} [about]
   * @returns {Promise<{ data: any[], cursor: string | null, hasMore: boolean }>}
   */
  async function list(path, body, about) {
    const { data, cursor, hasMore } = await client.call(path, body, { about });
    return { data, cursor, hasMore };
  }

  /**
   * Reads all that is left of a list.
   * @param {string} path
   * @param {Record<string, any>} body
   * @param {import('./client.js').CallOptions['about']} about
   */
  async function whole(path, body, about) {
    const data = [];
    for (let { cursor, sortOrder } = body.pagination ?? {}; ; ) {
      const page = await list(path, { ...body, pagination: { limit: 1000, cursor, sortOrder } }, about);
      data.push(...page.data);
      if (!page.hasMore) return { ...page, data };
      cursor = page.cursor;
    }
  }

  /**
   * @param {string} path
   * @param {{ pagination?: { limit?: number } }} params
   * @param {Record<string, any>} body
   * @param {import('./client.js').CallOptions['about']} about
   */
  const listEvents = (path, params, body, about) =>
    specVersion >= positions && params.pagination?.limit === undefined ? whole(path, body, about) : list(path, body, about);

  /**
   * Lists runs that have one of several statuses.
   * @param {string[]} statuses
   * @param {any} body
   */
  async function runsOf(statuses, body) {
    if (statuses.length === 1) return list('runs/list', { ...body, status: statuses[0] });
    const { limit = 100, cursor, sortOrder } = body.pagination ?? {};
    /** @type {{ data: any[], cursor: string | null, hasMore: boolean }} */
    const found = { data: [], cursor: cursor ?? null, hasMore: statuses.length > 0 };
    while (found.hasMore) {
      const page = await list('runs/list', { ...body, pagination: { limit, cursor: found.cursor ?? undefined, sortOrder } });
      const wanted = page.data.filter((run) => statuses.includes(run.status));
      const room = limit - found.data.length;
      found.data.push(...wanted.slice(0, room));
      found.hasMore = page.hasMore || wanted.length > room;
      // The place of a run is its id.
      found.cursor = wanted.length > room ? wanted[room - 1].runId : (page.data.at(-1)?.runId ?? found.cursor);
      if (found.data.length === limit) break;
    }
    return found;
  }

  /**
   * Returns the run that a step belongs to. Runtimes of 4.x may ask for a step by its id alone.
   * @param {string} stepId
   */
  async function runOf(stepId) {
    const body = { correlationId: stepId, resolveData: 'none', pagination: { limit: 1 } };
    const { data } = await list('events/list-by-correlation', body);
    if (data.length === 0) throw new classes.WorkflowWorldError(`Step not found: ${stepId}`, { status: 404, code: 'not_found' });
    return data[0].runId;
  }

  const world = {
    specVersion,
    // A resume is recorded once for each of its ids.
    capabilities: { hookResumeDedup: true },

    events: {
      /**
       * @param {string | null} runId
       * @param {any} data
       * @param {any} [params]
       */
      async create(runId, data, params = {}) {
        const { eventType, correlationId } = data;
        if (eventType === 'run_created') runId ??= `wrun_${newULID()}`; // so that a call that is made again creates no other run
        const body = {
          runId,
          data: {
            eventType,
            correlationId,
            specVersion: data.specVersion ?? specVersion,
            eventData: data.eventData,
          },
          params: {
            resolveData: ofEvents(params.resolveData),
            occurredAt: params.occurredAt,
            seqInBand: params.seqInBand,
            stateUpdatedAt: params.stateUpdatedAt,
            eventCount: params.eventCount,
            sinceCursor: params.sinceCursor,
            skipPreload: params.skipPreload,
            resumeId: params.resumeId,
            onConflict: params.onConflict,
          },
        };
        return client.call('events/create', body, { named: true, about: { runId, hookId: correlationId, eventType } });
      },

      /**
       * @param {string} runId
       * @param {string} id
       * @param {any} [params]
       */
      get: (runId, id, params) =>
        client.call('events/get', { runId, id, resolveData: ofEvents(params?.resolveData) }, { about: { runId } }),

      /** @param {any} params */
      list: (params) =>
        listEvents(
          'events/list',
          params,
          { runId: params.runId, pagination: params.pagination, resolveData: ofEvents(params.resolveData) },
          { runId: params.runId },
        ),

      /** @param {any} params */
      listByCorrelationId: (params) =>
        listEvents(
          'events/list-by-correlation',
          params,
          {
            correlationId: params.correlationId,
            runId: params.runId,
            pagination: params.pagination,
            resolveData: ofEvents(params.resolveData),
          },
          { runId: params.runId },
        ),
    },

    runs: {
      /**
       * @param {string} id
       * @param {any} [params]
       */
      get: (id, params) =>
        client.call('runs/get', { id, resolveData: withoutPayloads(params?.resolveData) }, { about: { runId: id } }),

      /** @param {any} [params] */
      list(params = {}) {
        const { workflowName, status, pagination } = params;
        const body = { workflowName, pagination, resolveData: withoutPayloads(params.resolveData) };
        return Array.isArray(status) ? runsOf(status, body) : list('runs/list', { ...body, status });
      },
    },

    steps: {
      /**
       * @param {string | undefined} runId
       * @param {string} id
       * @param {any} [params]
       */
      async get(runId, id, params) {
        runId ??= await runOf(id);
        return client.call('steps/get', { runId, id, resolveData: withoutPayloads(params?.resolveData) }, { about: { runId } });
      },

      /** @param {any} params */
      list: ({ runId, pagination, resolveData }) =>
        list('steps/list', { runId, pagination, resolveData: withoutPayloads(resolveData) }, { runId }),
    },

    hooks: {
      /**
       * @param {string} id
       * @param {any} [params]
       */
      get: (id, params) =>
        client.call('hooks/get', { id, resolveData: withoutPayloads(params?.resolveData) }, { about: { hookId: id } }),

      /**
       * @param {string} token
       * @param {any} [params]
       */
      getByToken: (token, params) =>
        client.call('hooks/by-token', { token, resolveData: withoutPayloads(params?.resolveData) }, { about: { token } }),

      /** @param {any} params */
      list: ({ runId, pagination, resolveData }) =>
        list('hooks/list', { runId, pagination, resolveData: withoutPayloads(resolveData) }, { runId }),
    },

    // The interface of 5.x, and behind it that of 4.x.
    streams,
    /** @type {(name: string, runId: string, chunk: string | Uint8Array) => Promise<void>} */
    writeToStream: (name, runId, chunk) => streams.write(runId, name, chunk),
    /** @type {(name: string, runId: string, chunks: (string | Uint8Array)[]) => Promise<void>} */
    writeToStreamMulti: (name, runId, chunks) => streams.writeMulti(runId, name, chunks),
    /** @type {(name: string, runId: string) => Promise<void>} */
    closeStream: (name, runId) => streams.close(runId, name),
    /** @type {(name: string, startIndex?: number) => Promise<ReadableStream<Uint8Array>>} */
    readFromStream: (name, startIndex) => streams.get(undefined, name, startIndex),
    listStreamsByRunId: streams.list,
    /** @type {(name: string, runId: string, options?: { limit?: number, cursor?: string }) => ReturnType<typeof streams.getChunks>} */
    getStreamChunks: (name, runId, options) => streams.getChunks(runId, name, options),
    /** @type {(name: string, runId: string) => ReturnType<typeof streams.getInfo>} */
    getStreamInfo: (name, runId) => streams.getInfo(runId, name),

    queue: createPublish(client, own),
    createQueueHandler,
    getDeploymentId: async () => own() || active(),
    resolveLatestDeploymentId: () => active(),

    /** Begins to handle messages: now, or as soon as the server is there. */
    async start() {
      worker.check();
      try {
        await worker.start(own() || (await active(Math.min(patienceMs, options.retryMs ?? patienceMs))));
      } catch (err) {
        if (!passing(/** @type {any} */ (err))) throw err;
        console.error(`[weft] the worker starts as soon as the server is there: ${/** @type {Error} */ (err).message}`);
        void startLater();
      }
    },

    /** Waits for the messages that are being handled, and ends all calls. */
    async close() {
      await worker.stop();
      await client.close();
    },
  };
  return world;
}
