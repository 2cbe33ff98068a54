import * as classes from '@workflow/errors';
import { SPEC_VERSION_CURRENT } from '@workflow/world';
import { Encoder } from 'cbor-x';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { connect, createServer as createTCPServer } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createWorld } from '../index.js';
import { decode, encode } from '../lib/codec.js';
import { makeWorld } from '../lib/world.js';

const url = process.env.WEFT_WORLD_URL;
const queue = '__wkf_workflow_order';
const opened = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
  vi.restoreAllMocks();
});

const open = (options) => {
  const world = createWorld(options);
  opened.push(world);
  return world;
};

/** Has a server listen, and returns its URL. */
async function listen(server) {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  opened.push({ close: () => (server.closeAllConnections(), server.close()) });
  return `http://127.0.0.1:${server.address().port}`;
}

/** Returns a port at which nobody listens. No connection gets it meanwhile, as it gets one that listen(0) has chosen. */
async function freePort(host) {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 22_768);
    const place = createTCPServer();
    const free = await new Promise((resolve) => place.once('error', () => resolve(false)).listen(port, host, () => resolve(true)));
    if (!free) continue;
    await new Promise((resolve) => place.close(resolve));
    return port;
  }
}

// What a control plane answers to a key with too many calls.
const tooMany = '{"status":429,"code":"rate_limited","message":"Rate limit exceeded"}';

let deployments = 0;
const deployment = () => `dpl-${process.pid}-${++deployments}`;

/** Returns an app that does not listen yet. Its endpoint answers with what answer returns; got has what it was sent. */
function appOf(answer = () => undefined) {
  const got = [];
  const listener = createServer(async (req, res) => {
    let body = '';
    for await (const piece of req) body += piece;
    const one = {
      path: req.url,
      headers: req.headers,
      body,
      at: Date.now(),
      id: req.headers['x-vqs-message-id'],
      attempt: Number(req.headers['x-vqs-message-attempt']),
    };
    got.push(one);
    const [status, answered] = (await answer(one, got.length, res)) ?? [200, '{"ok":true}'];
    if (status) res.writeHead(status, { 'content-type': 'application/json' }).end(answered);
  });
  return { got, listener };
}

/** Starts an app. */
async function app(answer) {
  const { got, listener } = appOf(answer);
  return { got, url: await listen(listener) };
}

const until = async (done, what, seconds = 30) => {
  for (const end = Date.now() + seconds * 1000; !done(); await sleep(5)) if (Date.now() > end) expect.fail(`${what} for ${seconds} s`);
};

/** Starts an app and a worker for it. */
async function working(answer, options) {
  const { got, url: appUrl } = await app(answer);
  const deploymentId = deployment();
  const world = open({ deploymentId, appUrl, ...options });
  await world.start();
  return { got, world, deploymentId };
}

/** Takes what waits in the queue of a deployment. */
const waiting = async (deploymentId) => {
  const answer = await fetch(`${url}/v1/world/queue/receive`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ deploymentId, max: 100, waitSeconds: 0 }),
  });
  return (await answer.json()).messages;
};

describe('a message', () => {
  test('is posted as JSON, with its headers, and acknowledged', async () => {
    const { got, world, deploymentId } = await working();
    const date = new Date();
    const { messageId } = await world.queue(queue, { runId: '1', requestedAt: date, runInput: { input: new Uint8Array([0, 255]) } }, { headers: { 'x-mine': 'yes' } });
    await world.queue('__my_wkf_step_pay', { stepId: 's' });
    await until(() => got.length === 2, 'two messages have not come');
    const [flow, step] = got.sort((a, b) => a.path.localeCompare(b.path));
    expect([flow.path, step.path]).toEqual(['/.well-known/workflow/v1/flow', '/.well-known/workflow/v1/step']);
    expect(JSON.parse(flow.body)).toEqual({ runId: '1', requestedAt: date.toJSON(), runInput: { input: { __type: 'Uint8Array', data: 'AP8=' } } });
    expect(flow.headers).toMatchObject({ 'content-type': 'application/json', 'x-vqs-queue-name': queue, 'x-vqs-message-id': messageId, 'x-vqs-message-attempt': '1', 'x-mine': 'yes' });
    await world.close();
    for (let seconds = 0; seconds < 12; seconds++) { // twice as long as it would have been held: it comes again only after it was seen overdue
      await sleep(1000);
      expect(await waiting(deploymentId)).toEqual([]);
    }
  });

  /** Publishes a message as a client that is not this package does. */
  const publish = async (body, type = 'application/json') => {
    const answer = await fetch(`${url}/v1/world/queue/publish`, { method: 'POST', headers: { 'content-type': type }, body });
    expect(answer.status).toBe(200);
  };

  test('of another client is posted with its integers', async () => {
    const { got, deploymentId } = await working();
    const message = { runId: '1', at: 1790000000000, below: -1790000000000 };
    await publish(JSON.stringify({ queueName: queue, message, opts: { deploymentId } }));
    await until(() => got.length === 1, 'it has not come');
    expect(JSON.parse(got[0].body)).toEqual(message);
  });

  test('is posted with the largest headers, and any name', async () => {
    const { got, world } = await working();
    const name = `__wkf_workflow_注文 100%/${'é'.repeat(480)}`;
    const headers = { 'X-Vqs-Message-Attempt': '7', latin: 'é', large: 'x'.repeat(12 * 1024 - 60) };
    await world.queue(name, { runId: '1' }, { headers });
    await until(() => got.length === 1, 'it has not come');
    expect(got[0].headers).toMatchObject({ 'x-vqs-message-attempt': '1', latin: 'é', large: headers.large });
    const handler = vi.fn();
    const answer = await world.createQueueHandler('__wkf_workflow_', handler)(new Request('http://app/', { method: 'POST', body: got[0].body, headers: got[0].headers }));
    expect(answer.status).toBe(200);
    expect(handler.mock.calls[0][1].queueName).toBe(name);
    await expect(world.queue(queue, { runId: '1' }, { headers: { large: 'x'.repeat(20_000) } })).rejects.toMatchObject({ status: 400 });
  });

  test('that cannot be posted comes again later each time', async () => {
    const errors = vi.spyOn(console, 'error').mockImplementation(() => {});
    const { got, world, deploymentId } = await working();
    const circle = {};
    circle.itself = circle;
    const body = new Encoder({ useRecords: false, structuredClone: true }).encode({ queueName: queue, message: circle, opts: { deploymentId } });
    await publish(body, 'application/cbor');
    await until(() => errors.mock.calls.flat().join().includes('attempt 3, cannot be posted'), 'it has not come again');
    await world.queue(queue, { runId: '1' });
    await until(() => got.length === 1, 'another message has not come');
    expect(errors.mock.calls.flat().join()).not.toContain('is delivered again'); // that would be when its time is over
  });

  test('comes again when its handler says so, never early, as the same attempt', async () => {
    const { got, world } = await working((one, n) => (n === 1 ? [200, '{"timeoutSeconds":1.2}'] : undefined));
    await world.queue(queue, { runId: '1' });
    await until(() => got.length === 2, 'it has not come again');
    expect(got[1].at - got[0].at).toBeGreaterThanOrEqual(1200);
    expect([got[1].id, got[1].attempt]).toEqual([got[0].id, 1]);
  });

  test('that fails comes again later each time, as another attempt', async () => {
    vi.spyOn(console, 'error').mockImplementation(() => {});
    const { got, world } = await working((one, n) => (n < 3 ? [500, 'no'] : undefined));
    await world.queue(queue, { runId: '1' });
    await until(() => got.length === 3, 'it has not come again');
    expect(got.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(new Set(got.map(({ id }) => id)).size).toBe(1);
    expect(got[1].at - got[0].at).toBeGreaterThanOrEqual(1000);
    expect(got[2].at - got[1].at).toBeGreaterThanOrEqual(2000);
    expect(console.error.mock.calls.flat().join()).toContain('HTTP 500: no');
  });

  // A runtime takes attempt 1 for the first delivery, and executes steps without a look at the log.
  test('that the app may have begun to handle comes again later each time, as another attempt', async () => {
    vi.spyOn(console, 'error').mockImplementation(() => {});
    const { got, world } = await working((one, n, res) => {
      if (n === 1) return res.destroy(), [0];
      if (n === 2) return res.writeHead(200, { 'content-length': 100 }).write('{', () => res.destroy()), [0];
    });
    await world.queue(queue, { runId: '1' });
    await until(() => got.length === 3, 'it has not come again');
    expect(got[1].at - got[0].at).toBeGreaterThanOrEqual(1000);
    expect(got[2].at - got[1].at).toBeGreaterThanOrEqual(2000);
    expect(got.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  });

  for (const host of ['127.0.0.1', 'localhost']) { // which may have two addresses
    test(`comes again each second, as the same attempt, while nothing listens on ${host}`, async () => {
      const logged = vi.spyOn(console, 'error').mockImplementation(() => {});
      const port = await freePort();
      const world = open({ deploymentId: deployment(), appUrl: `http://${host}:${port}` });
      await world.start();
      await world.queue(queue, { runId: '1' });
      await until(() => logged.mock.calls.flat().join().split('has not answered message').length > 2, 'it has not been posted twice');
      const { got, listener } = appOf();
      await new Promise((resolve) => listener.listen(port, resolve));
      opened.push({ close: () => (listener.closeAllConnections(), listener.close()) });
      await until(() => got.length === 1, 'it has not come');
      expect(got[0].attempt).toBe(1);
    });
  }

  test('comes again each second, as the same attempt, while the certificate of the app is not accepted', async () => {
    const logged = vi.spyOn(console, 'error').mockImplementation(() => {});
    const { got, url: appUrl } = await app();
    try {
      vi.stubEnv('WEFT_APP_URL', process.env.WEFT_STRANGER_URL);
      const world = open({ deploymentId: deployment() });
      await world.start();
      await world.queue(queue, { runId: '1' });
      await until(() => logged.mock.calls.flat().join().split('has not answered message').length > 2, 'it has not been posted twice');
      expect(logged.mock.calls.flat().join()).toContain('certificate');
      vi.stubEnv('WEFT_APP_URL', appUrl);
      await until(() => got.length === 1, 'it has not come');
      expect(got[0].attempt).toBe(1);
    } finally {
      vi.unstubAllEnvs();
    }
  });

  test('is acknowledged when the server takes the call again', async () => {
    let refused = 0;
    let acknowledged = false;
    const server = createServer(async (req, res) => {
      const body = await buffer(req);
      const acknowledges = req.url.endsWith('/queue/settle') && decode(body).settlements[0].as === 'acknowledge';
      if (acknowledges && refused++ < 2) return res.writeHead(429, { 'content-type': 'application/problem+json', 'retry-after': '1' }).end(tooMany);
      const { accept, 'content-type': type, 'weft-spec': spec } = req.headers;
      const answer = await fetch(url + req.url, { method: 'POST', headers: { accept, 'content-type': type, 'weft-spec': spec }, body });
      res.writeHead(answer.status, { 'content-type': answer.headers.get('content-type'), date: answer.headers.get('date') });
      res.end(Buffer.from(await answer.arrayBuffer()));
      acknowledged ||= acknowledges;
    });
    const refusing = await listen(server);
    const { got, world } = await working(undefined, { url: refusing });
    await world.queue(queue, { runId: '1' });
    await until(() => acknowledged, 'it has not been acknowledged');
    expect(got.length).toBe(1);
  });

  test('waits for its delay', async () => {
    const { got, world } = await working();
    const sent = Date.now();
    await world.queue(queue, { runId: '1' }, { delaySeconds: 1 });
    await until(() => got.length === 1, 'it has not come');
    expect(got[0].at - sent).toBeGreaterThanOrEqual(1000);
  });

  test('may wait for longer than the server takes', async () => {
    const errors = vi.spyOn(console, 'error').mockImplementation(() => {});
    const { got, world, deploymentId } = await working(() => [200, '{"timeoutSeconds":1e10}']);
    await world.queue(queue, { runId: '1' });
    await world.queue(queue, { runId: '2' }, { delaySeconds: 1e10 });
    await until(() => got.length === 1, 'it has not come');
    await world.close();
    expect(errors).not.toHaveBeenCalled();
    expect(await waiting(deploymentId)).toEqual([]);
  });

  // The server's messages are held for 6 s. What another process gets meanwhile is returned.
  const computing = async (ms, options) => {
    let other;
    const { got, world, deploymentId } = await working(() => {
      const consumer = spawn(process.execPath, ['test/consumer.js', url, deploymentId, String(ms / 1000 - 0.5)], { stdio: ['ignore', 'pipe', 'inherit'] });
      other = text(consumer.stdout);
      for (const end = Date.now() + ms; Date.now() < end; );
    }, options);
    await world.queue(queue, { runId: '1' });
    await until(() => got.length === 1, 'it has not come');
    return JSON.parse(await other);
  };
  test('is kept while the main thread computes', async () => expect(await computing(15_000, { concurrency: 1 })).toEqual([]));
  test('is given up when the main thread shows no sign', async () => expect(await computing(18_000, { concurrency: 1, silenceMs: 500 })).toEqual([2]));

  // A proxy may have its own clock, or send no date.
  for (const [what, change] of [
    ['a date of another clock', (date) => new Date(Date.parse(date) - 300_000).toUTCString()],
    ['no date', () => undefined],
  ]) {
    test(`is kept behind a proxy with ${what}`, async () => {
      let extended = 0;
      const proxy = createServer(async (req, res) => {
        if (req.url.endsWith('/queue/settle')) extended++;
        const { accept, 'content-type': type, 'weft-spec': spec } = req.headers;
        const body = req.method === 'POST' ? await buffer(req) : undefined;
        const answer = await fetch(url + req.url, { method: req.method, headers: { accept, 'weft-spec': spec, ...(type && { 'content-type': type }) }, body }).catch(() => {});
        if (!answer) return res.destroy(); // the server has ended
        const date = change(answer.headers.get('date'));
        res.sendDate = false;
        res.writeHead(answer.status, { 'content-type': answer.headers.get('content-type'), ...(date && { date }) });
        res.end(Buffer.from(await answer.arrayBuffer()));
      });
      let answered = false;
      const { got, world } = await working(async () => {
        await sleep(18_000); // three times as long as a message is held
        answered = true;
      }, { url: await listen(proxy) });
      await world.queue(queue, { runId: '1' });
      await until(() => answered, 'the message has not been handled', 60);
      expect(got.map(({ attempt }) => attempt)).toEqual([1]);
      expect(extended).toBeGreaterThan(2);
      expect(extended).toBeLessThan(30);
    });
  }

  test('is kept while others come', async () => {
    const runId = ({ body }) => JSON.parse(body).runId;
    let answered = false;
    const { got, world } = await working(async (one) => {
      if (runId(one) !== 'slow') return;
      await sleep(18_000); // three times as long as a message is held
      answered = true;
    });
    await world.queue(queue, { runId: 'slow' });
    for (; !answered; await sleep(150)) await world.queue(queue, { runId: 'fast' });
    expect(got.filter((one) => runId(one) === 'slow').map(({ attempt }) => attempt)).toEqual([1]);
    expect(got.length).toBeGreaterThan(10);
  });
});

describe('a worker', () => {
  /** Starts the thread that extends messages, of a server that answers with results. */
  async function keeping(results = () => []) {
    const extended = []; // when
    const server = createServer((_, res) => {
      extended.push(performance.now());
      res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode({ results: results() }));
    });
    const workerData = { url: await listen(server), spec: SPEC_VERSION_CURRENT, deploymentId: 'blue', silenceMs: 600_000 };
    const keeper = new Worker(new URL('../lib/keeper.js', import.meta.url), { workerData });
    opened.push({ close: () => keeper.terminate() });
    return { keeper, extended };
  }

  test('extends messages often for as long as one is held for a short time', async () => {
    const { keeper, extended } = await keeping();
    const late = { messageId: 'msg_1', receipt: 'R' };
    keeper.postMessage({ kind: 'hold', ...late, heldSeconds: 0.1 });
    await until(() => extended.length > 3, 'the late message has not been extended');
    keeper.postMessage({ kind: 'hold', messageId: 'msg_2', receipt: 'R', heldSeconds: 180 });
    keeper.postMessage({ kind: 'release', ...late });
    for (let looks = 0, before = -1; extended.length !== before; looks++) {
      expect(looks).toBeLessThan(10);
      before = extended.length;
      await sleep(2000);
    }
  });

  test('extends a message as often as the server last said', async () => {
    let heldSeconds = 0.6;
    const { keeper, extended } = await keeping(() => [{ heldSeconds }]);
    keeper.postMessage({ kind: 'hold', messageId: 'msg_1', receipt: 'R', heldSeconds: 9 });
    await until(() => extended.length > 10, 'the message has not been extended as often as it must be');
    heldSeconds = 180; // the server has another configuration
    for (let looks = 0, before = -1; extended.length !== before; looks++) {
      expect(looks).toBeLessThan(10);
      before = extended.length;
      await sleep(4000);
    }
  });

  test('extends messages now and then if it is not told for how long they are held', async () => {
    for (const heldSeconds of [undefined, NaN, 'long']) {
      const { keeper, extended } = await keeping(() => [{}]);
      keeper.postMessage({ kind: 'hold', messageId: 'msg_1', receipt: 'R', heldSeconds });
      await until(() => extended.length > 1, 'the message has not been extended');
      expect(extended[1] - extended[0]).toBeGreaterThan(500);
    }
  });

  test('takes 50 messages at the same time, and no more', async () => {
    let release;
    const gate = new Promise((resolve) => (release = resolve));
    const [{ got, url: appUrl }, deploymentId] = [await app(() => gate), deployment()];
    const world = open({ deploymentId, appUrl });
    await Promise.all(Array.from({ length: 60 }, () => world.queue(queue, { runId: '1' })));
    await world.start();
    await until(() => got.length === 50, '50 messages have not come');
    expect((await waiting(deploymentId)).length).toBe(10); // for other workers
    expect(new Set(got.map(({ id }) => id)).size).toBe(50);
    release();
  });

  test('keeps nothing of short messages while a long one is handled', async () => {
    const waits = new Map(); // how often each promise was waited for
    const { then } = Promise.prototype;
    Promise.prototype.then = function (...on) {
      waits.set(this, (waits.get(this) ?? 0) + 1);
      return then.apply(this, on);
    };
    opened.push({ close: () => (Promise.prototype.then = then) });
    let release;
    const gate = new Promise((resolve) => (release = resolve));
    const { got, world } = await working(({ body }) => (body.includes('long') ? gate : undefined), { concurrency: 2 });
    await world.queue(queue, { runId: 'long' });
    await until(() => got.length === 1, 'the long message has not come');
    for (let i = 0; i < 30; i++) await world.queue(queue, { runId: 'short' });
    await until(() => got.length === 31, 'the short messages have not come');
    expect(Math.max(...waits.values())).toBeLessThan(10);
    release();
  });

  test('that was started before an activation gets nothing of the new deployment', async () => {
    const [before, after] = [deployment(), deployment()];
    const activate = (name) => fetch(`${url}/test/activate/${name}`, { method: 'POST' });
    await activate(before);
    const [one, two] = [await app(), await app()];
    const old = open({ appUrl: one.url });
    await old.start();
    expect(await old.getDeploymentId()).toBe(before);
    await activate(after);
    const outside = open();
    await outside.queue(queue, { runId: 'new' });
    await old.queue(queue, { runId: 'old' }); // what its code goes on with
    await until(() => one.got.length === 1, 'the old worker has not got its message');
    await sleep(300);
    const young = open({ appUrl: two.url });
    await young.start();
    await until(() => two.got.length === 1, 'the new worker has not got its message');
    expect([one.got, two.got].map((got) => got.map(({ body }) => JSON.parse(body).runId))).toEqual([['old'], ['new']]);
    expect([await old.getDeploymentId(), await old.resolveLatestDeploymentId()]).toEqual([before, after]);
    await activate('blue');
  });

  test('that is gone while it waits takes nothing', async () => {
    const { world, deploymentId } = await working();
    const other = open({ deploymentId });
    for (let i = 0; i < 5; i++) {
      const receiving = new AbortController();
      const call = fetch(`${url}/v1/world/queue/receive`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ deploymentId, max: 1, waitSeconds: 20 }),
        signal: receiving.signal,
      }).catch(() => {});
      await sleep(50);
      receiving.abort();
      await call;
    }
    await world.close();
    await other.queue(queue, { runId: '1' });
    expect((await waiting(deploymentId)).map(({ attempt }) => attempt)).toEqual([1]);
  });
});

describe('a handler', () => {
  const { createQueueHandler } = makeWorld(SPEC_VERSION_CURRENT, classes, { url });
  const headers = { 'x-vqs-queue-name': queue, 'x-vqs-message-id': 'msg_1', 'x-vqs-message-attempt': '3' };
  const post = (handler, more, body = '{"b":{"__type":"Uint8Array","data":"AP8="}}') =>
    createQueueHandler('__wkf_workflow_', handler)(new Request('http://app/', { method: 'POST', body, headers: { ...headers, ...more } }));

  test('gets its message', async () => {
    const handler = vi.fn(async () => {});
    const answer = await post(handler);
    expect([answer.status, await answer.json()]).toEqual([200, { ok: true }]);
    expect(handler).toHaveBeenCalledWith({ b: new Uint8Array([0, 255]) }, { attempt: 3, queueName: queue, messageId: 'msg_1' });
  });
  test('may want it again', async () => expect(await (await post(async () => ({ timeoutSeconds: 5 }))).json()).toEqual({ timeoutSeconds: 5 }));
  test('may fail', async () => expect((await post(async () => Promise.reject(new Error('no')))).status).toBe(500));
  test('gets nothing of another queue, nor what is no message', async () => {
    const handler = vi.fn();
    expect((await post(handler, { 'x-vqs-queue-name': '__wkf_step_pay' })).status).toBe(400);
    expect((await post(handler, { 'x-vqs-message-attempt': '' })).status).toBe(400);
    expect((await post(handler, {}, 'no')).status).toBe(400);
    expect(handler).not.toHaveBeenCalled();
  });
});

describe('a world', () => {
  test('needs a URL, and a version of the interface that it knows', () => {
    vi.stubEnv('WEFT_WORLD_URL', undefined);
    expect(() => createWorld()).toThrow('WEFT_WORLD_URL');
    expect(() => createWorld({ url: 'ftp://host' })).toThrow('WEFT_WORLD_URL');
    vi.unstubAllEnvs();
    for (const version of [1, 8, 2.5, undefined]) expect(() => makeWorld(version, classes, { url })).toThrow('interface version');
  });

  test('says that there was no answer', async () => {
    const port = await freePort('127.0.0.1');
    const err = await open({ url: `http://127.0.0.1:${port}`, retryMs: 200 }).runs.get('wrun_1').catch((err) => err);
    expect(classes.WorkflowWorldError.is(err)).toBe(true);
    expect(err.code).toBe('TRANSPORT');
  });

  test('refuses a message that could not be posted', async () => {
    const world = open();
    await expect(world.queue(queue, { runId: 1n })).rejects.toThrow(TypeError);
    await expect(world.queue(queue, { runId: '1' }, { headers: { 'no header': '1' } })).rejects.toThrow(TypeError);
  });

  test('refuses at once what cannot be encoded', async () => {
    const eventData = { workflowName: 'w', deploymentId: 'blue', input: Symbol('none') };
    await expect(open().events.create(null, { eventType: 'run_created', eventData })).rejects.not.toMatchObject({ code: 'TRANSPORT' });
  });

  test('understands a control plane that refuses a call', async () => {
    const server = createServer((_, res) => res.writeHead(429, { 'content-type': 'application/problem+json', 'retry-after': '7' }).end(tooMany));
    const err = await open({ url: await listen(server) }).runs.get('wrun_1').catch((err) => err);
    expect(classes.ThrottleError.is(err)).toBe(true);
    expect(err).toMatchObject({ status: 429, code: 'rate_limited', message: 'Rate limit exceeded', retryAfter: 7 });
  });

  test('names the variable whose token the server refuses', async () => {
    const server = createServer((_, res) => res.writeHead(401).end('The token is missing or wrong.'));
    const refused = await listen(server);
    const world = open({ url: refused, appUrl: 'http://127.0.0.1:1', token: 'wrong' });
    for (const call of [() => world.start(), () => world.runs.get('wrun_1')]) {
      const err = await call().catch((err) => err);
      expect([err.status, err.message]).toEqual([401, expect.stringContaining(refused)]);
      expect(err.message).toContain('WEFT_WORLD_TOKEN');
    }
  });

  test('starts when the server comes later', async () => {
    const logged = vi.spyOn(console, 'error').mockImplementation(() => {});
    const said = () => logged.mock.calls.flat().join(' ');
    const port = await freePort('127.0.0.1');
    const { got, url: appUrl } = await app();
    const world = open({ url: `http://127.0.0.1:${port}`, appUrl, retryMs: 100 });
    await world.start(); // it returns, so that the app begins to listen
    expect(said()).toContain('the worker starts as soon as');
    const proxy = createTCPServer((from) => {
      const to = connect(Number(new URL(url).port), '127.0.0.1');
      from.on('error', () => to.destroy()).pipe(to);
      to.on('error', () => from.destroy()).pipe(from);
      opened.push({ close: () => (from.destroy(), to.destroy()) });
    });
    await new Promise((resolve) => proxy.listen(port, '127.0.0.1', resolve));
    opened.push({ close: () => proxy.close() });
    await until(() => said().includes('the worker has started'), 'the worker has not started');
    await world.queue(queue, { runId: 'wrun_late' });
    await until(() => got.some((one) => one.body.includes('wrun_late')), 'the message has not come');
  });

  test('does not start before it knows where the app is', async () => {
    vi.stubEnv('PORT', undefined);
    await expect(open().start()).rejects.toThrow('WEFT_APP_URL');
    vi.unstubAllEnvs();
  });

  test('has more readers of streams than connections for other calls', async () => {
    const world = open();
    const { run } = await world.events.create(null, { eventType: 'run_created', eventData: { workflowName: 'w', deploymentId: 'blue', input: 1 } });
    const readers = [];
    for (let i = 0; i < 150; i++) readers.push(text(await world.streams.get(run.runId, 'words')));
    await world.streams.write(run.runId, 'words', 'hello');
    await world.streams.close(run.runId, 'words');
    expect(new Set(await Promise.all(readers))).toEqual(new Set(['hello']));
  });

  test('that is closed has no end of a stream', async () => {
    const world = createWorld();
    const { run } = await world.events.create(null, { eventType: 'run_created', eventData: { workflowName: 'w', deploymentId: 'blue', input: 1 } });
    await world.streams.write(run.runId, 'words', 'hello');
    const reader = (await world.streams.get(run.runId, 'words')).getReader();
    await reader.read();
    const failed = expect(reader.read()).rejects.toMatchObject({ code: 'TRANSPORT' });
    await world.close();
    await failed;
  });

  test('lists runs of several statuses, page by page', async () => {
    const world = makeWorld(7, classes, { url });
    opened.push(world);
    const workflowName = `several-${process.pid}`;
    const all = [];
    for (let i = 0; i < 9; i++) {
      const { run } = await world.events.create(null, { eventType: 'run_created', eventData: { workflowName, deploymentId: 'blue', input: i } });
      if (i % 3 > 0) await world.events.create(run.runId, { eventType: i % 3 === 1 ? 'run_started' : 'run_cancelled' });
      if (i % 3 !== 1) all.push(run.runId);
    }
    const got = [];
    for (let cursor, hasMore = true; hasMore; ) {
      const page = await world.runs.list({ workflowName, status: ['pending', 'cancelled'], pagination: { limit: 2, sortOrder: 'asc', cursor } });
      expect(page.data.length).toBeLessThanOrEqual(2);
      got.push(...page.data.map(({ runId }) => runId));
      ({ cursor, hasMore } = page);
    }
    expect(got).toEqual(all.sort());
    expect((await world.runs.list({ workflowName, status: [] })).data).toEqual([]);
    expect((await world.runs.list({ workflowName, status: ['running'] })).data.length).toBe(3);
  });
});
