import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { createWorld } from '../index.js';

const { WEFT_WORLD_URL: url, WEFT_WORLD_TOKEN: token } = process.env;

test('the worker takes the messages of the deployment that is active', async () => {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  for (const [path, body] of [['', { manifest: { deploymentId: 'v1' } }], ['/v1/activate', {}]]) {
    const answer = await fetch(`${url}/v1/deployments${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    expect(answer.ok).toBe(true);
  }
  let world;
  const app = createServer();
  const message = new Promise((resolve) => app.on('request', async (req, res) => (resolve(await text(req)), res.end('{}'))));
  await new Promise((resolve) => app.listen(0, '127.0.0.1', resolve));
  try {
    world = createWorld({ appUrl: `http://127.0.0.1:${app.address().port}` });
    expect(await world.getDeploymentId()).toBe('v1');
    await world.start();
    await world.queue('__wkf_workflow_order', { runId: '1' });
    expect(JSON.parse(await message)).toEqual({ runId: '1' });
  } finally {
    await world?.close();
    app.closeAllConnections();
    app.close();
  }
});
