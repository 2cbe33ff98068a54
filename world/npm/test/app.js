// An app with a worker. It prints each message that it gets, and does not answer it.
import { createServer } from 'node:http';
import { createWorld } from '../index.js';

const server = createServer((req) => {
  req.resume();
  console.log(JSON.stringify({ id: req.headers['x-vqs-message-id'], attempt: Number(req.headers['x-vqs-message-attempt']) }));
});
server.listen(0, '127.0.0.1', async () => {
  process.env.PORT = String(server.address().port);
  process.env.WEFT_APP_URL = `http://127.0.0.1:${process.env.PORT}`;
  await createWorld().start();
  console.log('{}');
});
