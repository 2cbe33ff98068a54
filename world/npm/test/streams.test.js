import { createServer } from 'node:http';
import { connect, createServer as createTCPServer } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test, vi } from 'vitest';
import { createWorld } from '../index.js';
import { decode, encode } from '../lib/codec.js';

const url = process.env.WEFT_WORLD_URL;
const opened = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const one of opened.splice(0).reverse()) await one.close();
});

const open = (options) => {
  const world = createWorld(options);
  opened.push(world);
  return world;
};

const listen = async (server) => {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${server.address().port}`;
};

const until = async (done, what) => {
  for (const end = Date.now() + 30_000; !done(); await sleep(5)) if (Date.now() > end) expect.fail(`${what} for 30 s`);
};

/** Starts a proxy of the server, which counts the answers that have begun, cuts connections, and refuses them while it is away. */
async function proxy() {
  const cuts = new Set();
  const all = { url: '', answers: 0, away: false, cut: () => cuts.forEach((cut) => cut()) };
  const server = createTCPServer((from) => {
    if (all.away) return void from.destroy();
    const to = connect(Number(new URL(url).port), '127.0.0.1');
    const cut = () => (cuts.delete(cut), from.destroy(), to.destroy());
    cuts.add(cut);
    from.on('error', cut).on('close', cut).pipe(to);
    to.on('error', cut).on('close', cut).once('data', () => all.answers++).pipe(from);
  });
  all.url = await listen(server);
  opened.push({ close: () => (all.cut(), server.close()) });
  return all;
}

let streams = 0;
/** Begins a run, and returns its id and the name of a stream that is not there yet. */
async function begin(world = open()) {
  const eventData = { workflowName: 'order', deploymentId: 'blue', input: 1 };
  const { run } = await world.events.create(null, { eventType: 'run_created', eventData });
  return { runId: run.runId, name: `words-${process.pid}-${++streams}` };
}

async function chunks(stream) {
  const all = [];
  for await (const chunk of stream) all.push(new TextDecoder().decode(chunk));
  return all;
}

/** Lets the clock by which the client waits go forward. */
function clock() {
  const now = performance.now.bind(performance);
  let skippedMs = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => now() + skippedMs);
  return (ms) => (skippedMs += ms);
}

test('an idle stream may be cut again and again', async () => {
  const { runId, name } = await begin();
  const [through, skip] = [await proxy(), clock()];
  const got = chunks(await open({ url: through.url }).streams.get(runId, name));
  got.catch(() => {});
  for (let n = 1; n <= 2; n++) {
    await until(() => through.answers === n, `connection ${n} has not been answered`);
    await sleep(1000); // the client has got the head of the answer, also on a busy machine
    skip(61_000);
    through.cut();
  }
  await open().streams.write(runId, name, 'hello');
  await open().streams.close(runId, name);
  expect(await got).toEqual(['hello']);
});

test('a stream whose answers are cut at once fails after a minute', async () => {
  const skip = clock();
  let answers = 0;
  const server = createServer((_, res) => {
    answers++;
    skip(25_000);
    res.writeHead(200).flushHeaders();
    setImmediate(() => res.destroy());
  });
  opened.push({ close: () => (server.closeAllConnections(), server.close()) });
  const world = open({ url: await listen(server) });
  await expect(chunks(await world.streams.get('wrun_1', 'words'))).rejects.toMatchObject({ code: 'TRANSPORT' });
  expect(answers).toBe(4);
});

// A runtime writes at once what has come together, however much that is.
test('many chunks, and large ones, are written at once', async () => {
  for (const at of [url, process.env.WEFT_SMALL_URL]) { // the second one takes 127 operations and 1 MiB in a batch
    for (const [count, bytes] of [[2500, 10], [300, 8192]]) {
      const world = open({ url: at });
      const { runId, name } = await begin(world);
      const all = Array.from({ length: count }, (_, i) => String(i).padEnd(bytes, 'é'));
      await world.writeToStreamMulti(name, runId, all.map((text, i) => (i % 2 ? text : new TextEncoder().encode(text))));
      await world.streams.close(runId, name);
      expect(await chunks(await world.streams.get(runId, name))).toEqual(all);
    }
  }
  const { runId, name } = await begin();
  const tooLarge = new Uint8Array(2 << 20);
  await expect(open({ url: process.env.WEFT_SMALL_URL }).streams.write(runId, name, tooLarge)).rejects.toMatchObject({ status: 413 });
});

test('a call writes at most 1,000 chunks, and 512 KiB if it has several', async () => {
  const calls = [];
  const server = createServer(async (req, res) => {
    calls.push(decode(await buffer(req)).chunks.length);
    res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode({ index: 0 }));
  });
  opened.push({ close: () => (server.closeAllConnections(), server.close()) });
  const world = open({ url: await listen(server) });
  for (const [count, bytes] of [[2500, 1], [5, 200 << 10], [2, 600 << 10], [0, 1]]) {
    await world.streams.writeMulti('wrun_1', 'words', Array(count).fill('x'.repeat(bytes)));
  }
  expect(calls).toEqual([1000, 1000, 500, 2, 2, 1, 1, 1]);
});

for (const by of ['run', 'name']) {
  test(`a stream that is read from its end, by its ${by}, and cut before there is a chunk`, async () => {
    const { runId, name } = await begin();
    const through = await proxy();
    const got = chunks(await open({ url: through.url }).streams.get(by === 'run' ? runId : undefined, name, -1));
    await until(() => through.answers === 1, 'the reader has not been answered');
    await sleep(1000); // the client has got the head of the answer, also on a busy machine
    through.away = true;
    through.cut();
    await open().streams.writeMulti(runId, name, ['0', '1', '2']);
    await open().streams.close(runId, name);
    through.away = false;
    expect(await got).toEqual(['0', '1', '2']);
  });
}
