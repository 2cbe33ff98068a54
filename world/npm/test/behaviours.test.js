import { afterAll, describe, expect, test } from 'vitest';
import { makeWorld } from '../lib/world.js';

// What a runtime relies on, as each version of the interface calls it. All answers are read with that version's schemas.
const versions = {
  '4.5.0': ['world-4', 'errors-4'],
  '5.0.0-beta.21': ['world-5', '@workflow/errors'],
  '5.0.0-beta.37': ['world-5-37', 'errors-5-37'],
};

const utf8 = new TextDecoder();
const bytes = (text) => new TextEncoder().encode(text);
let runs = 0;

for (const [version, [interfacePackage, errorsPackage]] of Object.entries(versions)) {
  const schemas = await import(interfacePackage);
  const classes = await import(errorsPackage);
  const spec = schemas.SPEC_VERSION_CURRENT;
  const raw = makeWorld(spec, classes, {});
  const world = checked(raw, schemas);
  afterAll(() => raw.close());

  const id = () => `wrun_${version}-${process.pid}-${++runs}`;
  const create = (runId, eventType, correlationId, eventData, params) =>
    world.events.create(runId, { eventType, correlationId, eventData, specVersion: spec }, params);
  const begun = async (input) => {
    const runId = id();
    await create(runId, 'run_created', undefined, { deploymentId: 'blue', workflowName: 'order', input });
    await create(runId, 'run_started');
    return runId;
  };
  const refused = async (promise, status, text, is) => {
    const err = await promise.then(() => expect.fail('it was not refused'), (err) => err);
    expect(err.message).toContain(text);
    if (is) expect(is.is(err), `${err.name} is a ${is.name}`).toBe(true);
    if (status) expect(err.status).toBe(status);
    return err;
  };
  const created = (runId, step, input) => create(runId, 'step_created', step, { stepName: 'pay', input });

  describe(`log, ${version}`, () => {
    test("the client's id of a run", async () => {
      const runId = id();
      const { run, event } = await create(runId, 'run_created', undefined, { deploymentId: 'blue', workflowName: 'order', input: 1 });
      expect([run.runId, run.status, event.runId]).toEqual([runId, 'pending', runId]);
      const minted = await create(null, 'run_created', undefined, { deploymentId: 'blue', workflowName: 'order', input: 1 });
      expect(minted.run.runId).toMatch(/^wrun_[0-9A-HJKMNP-TV-Z]{26}$/);
    });
    test('other events need a run', () => refused(create(null, 'run_started'), 400, 'runId is required'));
    test('events of steps need a correlation', async () => {
      await refused(created(await begun(1), undefined, 1), 400, 'correlationId');
    });
    test('a second cancellation is answered', async () => {
      const runId = await begun(1);
      const first = await create(runId, 'run_cancelled');
      const again = await create(runId, 'run_cancelled');
      expect([again.event.eventId, again.run.status]).toEqual([first.event.eventId, 'cancelled']);
    });
    test('a start after the end', async () => {
      const runId = await begun(1);
      await create(runId, 'run_completed', undefined, { output: 1 });
      await refused(create(runId, 'run_started'), 409, 'terminal state', classes.RunExpiredError);
    });
    test('a step that is created after the end', async () => {
      const runId = await begun(1);
      await create(runId, 'run_failed', undefined, { error: 'no' });
      await refused(created(runId, 'step_1', 1), 409, 'terminal run', classes.EntityConflictError);
    });
    test('a hook that is created after the end', async () => {
      const runId = await begun(1);
      await create(runId, 'run_completed', undefined, { output: 1 });
      await refused(create(runId, 'hook_created', 'hook_1', { token: id() }), 409, 'terminal run', classes.EntityConflictError);
    });
    test('a step that has ended is started', async () => {
      const runId = await begun(1);
      await created(runId, 'step_1', 1);
      await create(runId, 'step_started', 'step_1');
      await create(runId, 'step_completed', 'step_1', { result: 1 });
      await refused(create(runId, 'step_started', 'step_1'), 409, 'completed', classes.EntityConflictError);
    });
    test('a step that is started too early', async () => {
      const runId = await begun(1);
      await created(runId, 'step_1', 1);
      await create(runId, 'step_started', 'step_1');
      await create(runId, 'step_retrying', 'step_1', { error: 'no', retryAfter: new Date(Date.now() + 3600_000) });
      const err = await refused(create(runId, 'step_started', 'step_1'), 425, 'retried', classes.TooEarlyError);
      expect(err.retryAfter).toBeGreaterThan(3590);
      expect(err.retryAfter).toBeLessThanOrEqual(3600);
    });
    test('an unknown hook is disposed', async () => {
      await refused(create(await begun(1), 'hook_disposed', 'hook_0'), undefined, '', classes.HookNotFoundError);
    });
    test('runs, steps and hooks without data', async () => {
      const runId = await begun(bytes('in'));
      await created(runId, 'step_1', bytes('a'));
      const hookId = id();
      await create(runId, 'hook_created', hookId, { token: id(), metadata: bytes('m') });
      const none = { resolveData: 'none' };
      const some = [
        await world.runs.get(runId, none),
        (await world.runs.list({ ...none, pagination: { limit: 1 } })).data[0],
        await world.steps.get(runId, 'step_1', none),
        (await world.steps.list({ runId, ...none })).data[0],
        await world.hooks.get(hookId, none),
      ];
      for (const one of some) expect([one.input, one.output, one.metadata]).toEqual([undefined, undefined, undefined]);
    });
    test('events without data', async () => {
      const runId = await begun(bytes('in'));
      await created(runId, 'step_1', bytes('a'));
      const page = await world.events.list({ runId, resolveData: 'none', pagination: { sortOrder: 'asc' } });
      const one = await world.events.get(runId, page.data[2].eventId, { resolveData: 'none' });
      // From 5.x on this leaves out the payload alone.
      for (const event of [page.data[2], one]) expect(event.eventData).toEqual(spec < 4 ? undefined : { stepName: 'pay' });
    });
    test('a legacy run', async () => {
      const runId = id();
      await world.events.create(runId, { eventType: 'run_created', specVersion: 1, eventData: { deploymentId: 'blue', workflowName: 'order', input: 1 } });
      await refused(create(runId, 'run_started'), 409, 'not supported for legacy runs', classes.EntityConflictError);
      await create(runId, 'hook_received', 'hook_1', { payload: 1 });
      const { run } = await create(runId, 'run_cancelled');
      expect(run.status).toBe('cancelled');
    });
    test('a run of a later spec', async () => {
      const eventData = { deploymentId: 'blue', workflowName: 'order', input: 1 };
      const err = await refused(
        world.events.create(id(), { eventType: 'run_created', specVersion: spec + 1, eventData }),
        undefined,
        '',
        classes.RunNotSupportedError,
      );
      expect([err.runSpecVersion, err.worldSpecVersion]).toEqual([spec + 1, spec]);
    });
  });

  describe(`hooks, ${version}`, () => {
    const ends = { run_completed: { output: 1 }, run_failed: { error: 'no' }, run_cancelled: undefined };
    const hooked = async (token, hookId) => {
      const runId = await begun(1);
      await create(runId, 'hook_created', hookId, { token });
      return runId;
    };
    for (const [end, data] of Object.entries(ends)) {
      test(`gone after ${end}`, async () => {
        const [token, hookId] = [id(), id()];
        const runId = await hooked(token, hookId);
        expect((await world.hooks.getByToken(token)).hookId).toBe(hookId);
        await create(runId, end, undefined, data);
        await refused(world.hooks.getByToken(token), undefined, '', classes.HookNotFoundError);
        await refused(world.hooks.get(hookId), undefined, '', classes.HookNotFoundError);
        expect((await world.hooks.list({ runId })).data).toEqual([]);
      });
    }
    test('the token again', async () => {
      const [token, hookId] = [id(), id()];
      await create(await hooked(token, id()), 'run_completed', undefined, { output: 1 });
      await hooked(token, hookId);
      expect((await world.hooks.getByToken(token)).hookId).toBe(hookId);
    });
    test('a conflict', async () => {
      const token = id();
      const runId = await hooked(token, id());
      const { event } = await create(await begun(1), 'hook_created', id(), { token });
      expect([event.eventType, event.eventData]).toEqual(['hook_conflict', { token, conflictingRunId: runId }]);
    });
    test('only a webhook is one', async () => {
      for (const isWebhook of [false, true]) { // a runtime takes what is not told for a webhook, which anybody may call
        const [runId, token, hookId] = [await begun(1), id(), id()];
        const { hook } = await create(runId, 'hook_created', hookId, { token, isWebhook });
        const listed = (await world.hooks.list({ runId })).data;
        const all = [hook, await world.hooks.get(hookId), await world.hooks.getByToken(token), ...listed];
        expect(all.map((one) => one.isWebhook)).toEqual(Array(4).fill(isWebhook));
      }
    });
    test('too many', async () => {
      const runId = await begun(1);
      for (let i = 0; i < 3; i++) await create(runId, 'hook_created', id(), { token: id() });
      const err = await refused(create(runId, 'hook_created', id(), { token: id() }), 409, 'open hooks', classes.WorkflowWorldError);
      // A runtime takes a conflict for a hook that is there already, and would wait for it for ever.
      expect([err.code, classes.EntityConflictError.is(err)]).toEqual(['limit', false]);
    });
    test('several', async () => {
      const runId = await begun(1);
      const tokens = [id(), id(), id()];
      for (const token of tokens) await create(runId, 'hook_created', id(), { token });
      expect((await world.hooks.list({ runId })).data.map((hook) => hook.token).sort()).toEqual(tokens.sort());
      const all = (await world.hooks.list({ pagination: { limit: 1000 } })).data.filter((hook) => tokens.includes(hook.token));
      expect(all.map((hook) => hook.runId)).toEqual([runId, runId, runId]);
      await create(runId, 'run_completed', undefined, { output: 1 });
      for (const token of tokens) await refused(world.hooks.getByToken(token), undefined, '', classes.HookNotFoundError);
      const { data } = await world.events.list({ runId });
      expect(data.filter((event) => event.eventType === 'hook_disposed').length).toBe(3);
    });
  });

  describe(`outputs, ${version}`, () => {
    const outputs = {
      'a number': 42,
      'an object': { a: 1 },
      'nested objects': { a: { b: [1, {}] } },
      'a string': 'text',
      'an array': [1, 'b', null],
      booleans: [true, false],
      null: null,
      0: 0,
      'the empty string': '',
    };
    for (const [name, value] of Object.entries(outputs)) {
      test(name, async () => {
        const runId = await begun(value);
        await create(runId, 'run_completed', undefined, { output: value });
        const run = await world.runs.get(runId);
        expect([run.status, run.input, run.output]).toEqual(['completed', value, value]);
      });
    }
    for (const value of ['text', { total: 7 }, [1, 2]]) {
      test(`${JSON.stringify(value)} of a step`, async () => {
        const runId = await begun(1);
        await created(runId, 'step_1', 1);
        await create(runId, 'step_started', 'step_1');
        const { step } = await create(runId, 'step_completed', 'step_1', { result: value });
        expect([step.status, step.output]).toEqual(['completed', value]);
        expect((await world.steps.get(runId, 'step_1')).output).toEqual(value);
      });
    }
    for (const value of [['a', 2, { b: null }], { items: [{ id: 1 }], bytes: bytes('\0ÿ') }]) {
      test(`${Array.isArray(value) ? 'arguments' : 'an object'} as the input`, async () => {
        const runId = await begun(value);
        await created(runId, 'step_1', value);
        expect((await world.runs.get(runId)).input).toEqual(value);
        expect((await world.steps.get(runId, 'step_1')).input).toEqual(value);
      });
    }
  });

  describe(`values, ${version}`, () => {
    const date = new Date(1767355200123);
    test('dates in the input of a run', async () => {
      expect((await world.runs.get(await begun({ date }))).input).toEqual({ date });
    });
    test('dates in the input of a step', async () => {
      const runId = await begun(1);
      await created(runId, 'step_1', [date, { date }]);
      expect((await world.steps.get(runId, 'step_1')).input).toEqual([date, { date }]);
    });
    test('dates in the output of a step', async () => {
      const runId = await begun(1);
      await created(runId, 'step_1', 1);
      await create(runId, 'step_started', 'step_1');
      await create(runId, 'step_completed', 'step_1', { result: date });
      expect((await world.steps.get(runId, 'step_1')).output).toEqual(date);
    });
    test('dates in the data of an event', async () => {
      const runId = await begun(1);
      const { wait, event } = await create(runId, 'wait_created', 'wait_1', { resumeAt: date });
      expect([wait.resumeAt, event.eventData.resumeAt]).toEqual([date, date]);
      expect((await world.events.get(runId, event.eventId)).eventData).toEqual({ resumeAt: date });
    });
    test('dates in the metadata of a hook', async () => {
      const hookId = id();
      await create(await begun(1), 'hook_created', hookId, { token: id(), metadata: { date } });
      expect((await world.hooks.get(hookId)).metadata).toEqual({ date });
    });
    test('null and undefined', async () => {
      const value = { a: null, b: undefined, c: [undefined, null], map: new Map([['k', undefined]]), set: new Set([null]) };
      const { input } = await world.runs.get(await begun(value));
      expect(input).toStrictEqual(value);
    });
    test('nesting', async () => {
      let value = { leaf: date };
      for (let i = 0; i < 100; i++) value = i % 2 ? { value } : [value];
      expect((await world.runs.get(await begun(value))).input).toEqual(value);
    });
    test('order', async () => {
      const runId = await begun({ z: 1, a: 2, m: 3 });
      expect(Object.keys((await world.runs.get(runId)).input)).toEqual(['z', 'a', 'm']);
      for (const step of ['step_1', 'step_2', 'step_3']) await created(runId, step, 1);
      const first = await world.events.list({ runId, pagination: { sortOrder: 'asc', limit: 3 } });
      const rest = await world.events.list({ runId, pagination: { sortOrder: 'asc', limit: 3, cursor: first.cursor } });
      const all = [...first.data, ...rest.data].map((event) => event.correlationId ?? event.eventType);
      expect(all).toEqual(['run_created', 'run_started', 'step_1', 'step_2', 'step_3']);
      expect([first.hasMore, rest.hasMore]).toEqual([true, false]);
      const down = await world.events.list({ runId });
      expect(down.data.map((event) => event.eventId)).toEqual([...first.data, ...rest.data].map((event) => event.eventId).reverse());
      if (spec >= 6) expect(down.data.map((event) => schemas.requireEventSlot(event.eventId))).toEqual([5, 4, 3, 2, 1]);
    });
  });

  describe(`queue, ${version}`, () => {
    const queue = '__wkf_workflow_order';
    const opts = { deploymentId: `nobody-${version}` };
    test('the deployment', async () => expect(await world.getDeploymentId()).toBe('blue'));
    test('the id of a message', async () => {
      const { messageId } = await world.queue(queue, { runId: id() }, opts);
      expect(messageId).toMatch(/^msg_[0-9A-HJKMNP-TV-Z]{26}$/);
    });
    test('the same key', async () => {
      const idempotencyKey = id();
      const first = await world.queue(queue, { runId: '1' }, { ...opts, idempotencyKey });
      expect(await world.queue(queue, { runId: '1' }, { ...opts, idempotencyKey })).toEqual(first);
    });
    test('other keys, and none', async () => {
      const keys = [id(), id(), undefined, undefined];
      const all = await Promise.all(keys.map((idempotencyKey) => world.queue(queue, { runId: '1' }, { ...opts, idempotencyKey })));
      expect(new Set(all.map(({ messageId }) => messageId)).size).toBe(4);
    });
  });

  describe(`streams, ${version}`, () => {
    // The calls of this version.
    const calls =
      spec < 4
        ? {
            write: (runId, name, chunk) => world.writeToStream(name, runId, chunk),
            writeMulti: (runId, name, chunks) => world.writeToStreamMulti(name, runId, chunks),
            close: (runId, name) => world.closeStream(name, runId),
            get: (runId, name, at) => world.readFromStream(name, at),
            list: world.listStreamsByRunId,
            getChunks: (runId, name, options) => world.getStreamChunks(name, runId, options),
            getInfo: (runId, name) => world.getStreamInfo(name, runId),
          }
        : world.streams;
    const read = async (runId, name, at) => {
      const chunks = [];
      for await (const chunk of await calls.get(runId, name, at)) {
        expect(chunk.constructor).toBe(Uint8Array);
        chunks.push(chunk);
      }
      return chunks;
    };
    const text = async (...where) => (await read(...where)).map((chunk) => utf8.decode(chunk));
    test('text', async () => {
      const [runId, name] = [await begun(1), id()];
      await calls.write(runId, name, 'héllo');
      await calls.close(runId, name);
      expect(await text(runId, name)).toEqual(['héllo']);
    });
    test('bytes', async () => {
      const [runId, name] = [await begun(1), id()];
      const chunk = Uint8Array.from({ length: 70_000 }, (_, i) => i);
      await calls.write(runId, name, chunk);
      await calls.close(runId, name);
      expect(await read(runId, name)).toEqual([chunk]);
    });
    test('NUL', async () => {
      const [runId, name] = [await begun(1), id()];
      await calls.write(runId, name, 'a\0b');
      await calls.write(runId, name, new Uint8Array([0, 0]));
      await calls.close(runId, name);
      expect(await text(runId, name)).toEqual(['a\0b', '\0\0']);
    });
    test('order, from any place, while it is written', async () => {
      const [runId, name] = [await begun(1), id()];
      const want = Array.from({ length: 50 }, (_, i) => `chunk ${i}`);
      await calls.write(runId, name, want[0]);
      const live = text(runId, name);
      await calls.writeMulti(runId, name, want.slice(1, 30));
      for (const chunk of want.slice(30)) await calls.write(runId, name, chunk);
      expect(await calls.getInfo(runId, name)).toEqual({ tailIndex: 49, done: false });
      await calls.close(runId, name);
      expect(await live).toEqual(want);
      expect(await text(runId, name, 45)).toEqual(want.slice(45));
      expect(await text(runId, name, -2)).toEqual(want.slice(48));
      const first = await calls.getChunks(runId, name, { limit: 30 });
      const rest = await calls.getChunks(runId, name, { cursor: first.cursor });
      expect([...first.data, ...rest.data].map(({ index, data }) => [index, utf8.decode(data)])).toEqual(want.map((chunk, i) => [i, chunk]));
      expect([first.hasMore, rest.hasMore, rest.done]).toEqual([true, false, true]);
    });
    test('names apart', async () => {
      const [runId, one, two] = [await begun(1), id(), id()];
      await calls.write(runId, one, '1');
      await calls.write(runId, two, '2');
      await calls.close(runId, one);
      await calls.close(runId, two);
      expect([await text(runId, one), await text(runId, two)]).toEqual([['1'], ['2']]);
    });
    test('listed by run', async () => {
      const [runId, other, name] = [await begun(1), await begun(1), id()];
      await calls.write(runId, `${name}-a`, '1');
      await calls.write(runId, `${name}-b`, '1');
      await calls.write(other, `${name}-c`, '1');
      expect((await calls.list(runId)).sort()).toEqual([`${name}-a`, `${name}-b`]);
    });
    test('JSON', async () => {
      const [runId, name] = [await begun(1), id()];
      const values = [{ a: [1, null] }, 'text', 5];
      await calls.writeMulti(runId, name, values.map((value) => JSON.stringify(value)));
      await calls.close(runId, name);
      expect((await text(runId, name)).map((chunk) => JSON.parse(chunk))).toEqual(values);
    });
  });
}

/** Reads what a world answers with the schemas of a version of the interface. */
function checked(world, schemas) {
  const entity = (schema, base) => (value, params) => (params?.resolveData === 'none' ? base : schema).parse(value);
  const run = entity(schemas.WorkflowRunSchema, schemas.WorkflowRunBaseSchema);
  const step = entity(schemas.StepSchema, schemas.StepSchema);
  const hook = entity(schemas.HookSchema, schemas.HookSchema);
  const event = (value, params) => {
    // What an event has besides what it is made of.
    expect(value).toMatchObject({ runId: expect.any(String), eventId: expect.any(String), createdAt: expect.any(Date) });
    return params?.resolveData === 'none' ? { ...value, ...schemas.BaseEventSchema.parse(value) } : schemas.EventSchema.parse(value);
  };
  const page = (of) => (value, params) => {
    expect(Object.keys(value).sort()).toEqual(['cursor', 'data', 'hasMore']);
    return { ...schemas.PaginatedResponseSchema(schemas.BaseEventSchema.partial().loose()).parse(value), data: value.data.map((item) => of(item, params)) };
  };
  const reads = (calls, get, at = 1) => ({
    get: async (...args) => get(await calls.get(...args), args.at(-1)),
    list: async (params) => page(get)(await calls.list(params), params),
    ...(calls.getByToken && { getByToken: async (token, params) => get(await calls.getByToken(token, params), params) }),
  });
  return {
    ...world,
    events: {
      ...reads(world.events, event),
      async create(...args) {
        const got = await world.events.create(...args);
        return {
          ...got,
          ...(got.event && { event: event(got.event) }),
          ...(got.run && { run: run(got.run) }),
          ...(got.step && { step: step(got.step) }),
          ...(got.hook && { hook: hook(got.hook) }),
          ...(got.wait && { wait: schemas.WaitSchema.parse(got.wait) }),
        };
      },
    },
    runs: reads(world.runs, run),
    steps: reads(world.steps, step),
    hooks: reads(world.hooks, hook),
    async queue(name, message, opts) {
      schemas.QueuePayloadSchema.parse(message);
      return world.queue(schemas.ValidQueueName.parse(name), message, opts);
    },
  };
}
