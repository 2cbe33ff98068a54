import { expect, test } from 'vitest';
import { createWorld } from '../index.js';

// The proxy at WEFT_WORLD_URL cuts the answers of half of the calls that change something, after they were executed.
const url = process.env.WEFT_WORLD_URL;
const world = createWorld();

/** @param {number} n @param {(i: number) => Promise<any>} f calls of f, 10 at the same time */
async function parallel(n, f) {
  const all = Array.from({ length: n });
  let next = 0;
  await Promise.all(Array.from({ length: 10 }, async () => {
    while (next < n) {
      const i = next++;
      all[i] = await f(i);
    }
  }));
  return all;
}

async function begin() {
  const eventData = { workflowName: 'order', deploymentId: 'blue', input: new Uint8Array([1]) };
  const { run } = await world.events.create(null, { eventType: 'run_created', specVersion: world.specVersion, eventData });
  await world.events.create(run.runId, { eventType: 'run_started', specVersion: world.specVersion });
  return run.runId;
}

async function log(runId) {
  const all = [];
  for (let cursor, hasMore = true; hasMore; ) {
    const page = await world.events.list({ runId, pagination: { sortOrder: 'asc', limit: 1000, cursor } });
    all.push(...page.data);
    ({ cursor, hasMore } = page);
  }
  return all;
}

const step = (i) => `step_${String(i).padStart(3, '0')}`;

test('200 creates are 200 events', async () => {
  const runId = await begin();
  const answers = await parallel(200, (i) =>
    world.events.create(runId, { eventType: 'step_created', correlationId: step(i), specVersion: world.specVersion, eventData: { stepName: 'pay', input: i } }),
  );
  const events = (await log(runId)).slice(2);
  expect(events.map(({ correlationId }) => correlationId).sort()).toEqual(Array.from({ length: 200 }, (_, i) => step(i)));
  expect(events.map(({ eventId }) => eventId).sort()).toEqual(answers.map(({ event }) => event.eventId).sort());
});

test('20 creations without an id are 20 runs', async () => {
  const workflowName = `created-${process.pid}`;
  const eventData = { workflowName, deploymentId: 'blue', input: new Uint8Array([1]) };
  const answers = await parallel(20, () => world.events.create(null, { eventType: 'run_created', specVersion: world.specVersion, eventData }));
  const { data } = await world.runs.list({ workflowName, pagination: { limit: 1000 } });
  expect(data.map(({ runId }) => runId).sort()).toEqual(answers.map(({ run }) => run.runId).sort());
  expect(new Set(answers.map(({ run }) => run.runId)).size).toBe(20);
  for (const { runId } of data) expect(runId).toMatch(/^wrun_[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
});

test('no step is executed twice', async () => {
  const runId = await begin();
  const start = (i) =>
    world.events.create(runId, { eventType: 'step_started', correlationId: step(i), specVersion: world.specVersion, eventData: { stepName: 'pay', input: i } });
  // Who has created a step executes it: its caller, once, and nobody else.
  const answers = await parallel(100, start);
  expect(answers.filter(({ stepCreated, step }) => stepCreated && step.attempt === 1).length).toBe(100);
  const again = await parallel(100, (i) => start(i).catch(() => ({})));
  expect(again.filter(({ stepCreated }) => stepCreated)).toEqual([]);
  expect((await log(runId)).length).toBe(2 + 200);
});

test('100 writes are 100 chunks', async () => {
  const runId = await begin();
  const want = Array.from({ length: 100 }, (_, i) => `chunk ${i}`);
  for (const chunk of want) await world.streams.write(runId, 'words', chunk);
  await world.streams.close(runId, 'words');
  const got = [];
  for await (const chunk of await world.streams.get(runId, 'words')) got.push(new TextDecoder().decode(chunk));
  expect(got).toEqual(want);
});

test('100 messages are published once', async () => {
  const deploymentId = `dpl-${process.pid}`;
  const ids = await parallel(100, (i) => world.queue('__wkf_workflow_order', { runId: String(i) }, { deploymentId }));
  const got = [];
  for (;;) {
    const answer = await fetch(`${url}/v1/world/queue/receive`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ deploymentId, max: 100, waitSeconds: 0 }),
    });
    const { messages } = await answer.json();
    if (messages.length === 0) break;
    got.push(...messages.map(({ messageId }) => messageId));
  }
  expect(got.sort()).toEqual(ids.map(({ messageId }) => messageId).sort());
});
