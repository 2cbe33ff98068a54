import { setTimeout as sleep } from 'node:timers/promises';
import { decode, encode, plain } from './codec.js';
import { passing } from './client.js';

/** How long a reader waits for a server that is away, or that cuts each of its answers at once. */
const patienceMs = 60_000;

/** The longest pause between two calls of a reader. An answer that took longer than that was not cut at once. */
const longestPauseMs = 2_000;

/** How much one call writes at most. A store may take less. */
const pageChunks = 1000;
const pageBytes = 512 << 10;

/**
 * @param {import('./client.js').Client} client
 */
export function createStreams(client) {
  /**
   * Writes chunks, in as many calls as it takes: a runtime writes at once what has come together.
   * @param {string} runId
   * @param {string} name
   * @param {(string | Uint8Array)[]} chunks
   */
  async function writeMulti(runId, name, chunks) {
    let most = pageChunks;
    for (let from = 0; from < chunks.length; ) {
      let to = from;
      for (let bytes = 0; to < Math.min(from + most, chunks.length); to++) {
        bytes += Buffer.byteLength(chunks[to]);
        if (to > from && bytes > pageBytes) break;
      }
      const page = chunks.slice(from, to);
      try {
        await client.call('streams/write', { runId, name, chunks: page }, { named: true, about: { runId } });
        from = to;
      } catch (err) {
        if (/** @type {any} */ (err).status !== 413 || page.length === 1) throw err;
        most = Math.ceil(page.length / 2);
      }
    }
  }

  return {
    writeMulti,

    /**
     * @param {string} runId
     * @param {string} name
     * @param {string | Uint8Array} chunk
     */
    write: (runId, name, chunk) => writeMulti(runId, name, [chunk]),

    /**
     * @param {string} runId
     * @param {string} name
     */
    async close(runId, name) {
      await client.call('streams/close', { runId, name }, { named: true, about: { runId } });
    },

    /**
     * Reads a stream to its end. The bytes come as they are written.
     * @param {string | undefined} runId nothing: of the newest run that has a stream of the name
     * @param {string} name
     * @param {number} [startIndex]
     */
    async get(runId, name, startIndex = 0) {
      const stop = new AbortController();
      const chunks = follow(client, { runId, name, startIndex }, stop.signal);
      return /** @type {ReadableStream<Uint8Array>} */ (
        new ReadableStream({
          async pull(controller) {
            const { done, value } = await chunks.next();
            if (done) controller.close();
            else controller.enqueue(value);
          },
          async cancel() {
            stop.abort();
            await chunks.return(undefined);
          },
        })
      );
    },

    /**
     * @param {string} runId
     * @returns {Promise<string[]>}
     */
    async list(runId) {
      const names = [];
      for (let cursor; ; ) {
        const page = await client.call('streams/list', { runId, pagination: { limit: 1000, sortOrder: 'asc', cursor } });
        names.push(...page.data);
        if (!page.hasMore) return names;
        cursor = page.tail;
      }
    },

    /**
     * @param {string} runId
     * @param {string} name
     * @param {{ limit?: number, cursor?: string }} [options]
     */
    async getChunks(runId, name, { limit, cursor } = {}) {
      const page = await client.call('streams/chunks', { runId, name, pagination: { limit, cursor } });
      return { data: page.data, cursor: page.cursor ?? null, hasMore: page.hasMore, done: page.done };
    },

    /**
     * @param {string} runId
     * @param {string} name
     * @returns {Promise<{ tailIndex: number, done: boolean }>}
     */
    async getInfo(runId, name) {
      const { tailIndex, done } = await client.call('streams/info', { runId, name });
      return { tailIndex, done };
    },
  };
}

/**
 * Yields the chunks of a stream to its end. If the answer is cut, it goes on behind the last chunk that came.
 * @param {import('./client.js').Client} client
 * @param {{ runId?: string, name: string, startIndex: number }} from
 * @param {AbortSignal} stop
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
async function* follow(client, from, stop) {
  let { startIndex } = from;
  for (let lost = 0, attempt = 0; ; attempt++) {
    let failure;
    let answeredAt = Infinity;
    try {
      const answer = await client.open('streams/read', encode({ ...from, startIndex }), { signal: stop, about: from });
      answeredAt = performance.now();
      startIndex = Number(answer.headers['weft-start-index'] ?? startIndex); // a negative one counts from the end, which moves
      for await (const [index, data] of sequence(answer.body)) {
        lost = attempt = 0;
        if (data === null) return;
        startIndex = index + 1;
        yield data;
      }
      failure = new Error('the answer was cut');
    } catch (err) {
      if (stop.aborted) return;
      failure = client.failure('streams/read', err);
      if (!passing(failure) || client.closed.signal.aborted) throw failure; // and no end of the stream
    }
    if (performance.now() - answeredAt > longestPauseMs) lost = attempt = 0; // there was nothing to read
    lost ||= performance.now();
    if (performance.now() - lost > patienceMs) throw client.failure('streams/read', failure);
    await sleep(Math.min(longestPauseMs, 50 * 2 ** attempt), undefined, { signal: stop }).catch(() => {});
    if (stop.aborted) return;
  }
}

/**
 * Yields the items of a sequence of CBOR, each an array of an index and bytes or null.
 * @param {AsyncIterable<Uint8Array>} body
 * @returns {AsyncGenerator<[number, Uint8Array | null], void, void>}
 */
async function* sequence(body) {
  /** @type {Uint8Array[]} */
  let pieces = [];
  let have = 0;
  let need = 1;
  for await (const piece of body) {
    pieces.push(piece);
    have += piece.length;
    if (have < need) continue;
    let rest = plain(pieces.length === 1 ? piece : Buffer.concat(pieces));
    for (;;) {
      need = lengthOf(rest);
      if (need > rest.length) break;
      yield decode(rest.subarray(0, need));
      rest = rest.subarray(need);
    }
    pieces = [rest];
    have = rest.length;
  }
}

/**
 * Returns how many bytes the item has that begins a buffer, or more than there are, if that is not known yet.
 * @param {Uint8Array} b
 */
function lengthOf(b) {
  let at = 1; // the head of an array of two
  for (let i = 0; i < 2; i++) {
    if (at >= b.length) return b.length + 1;
    const info = b[at] & 31;
    const extra = info < 24 || info > 27 ? 0 : 1 << (info - 24);
    if (at + 1 + extra > b.length) return b.length + 1;
    let n = info;
    if (extra > 0) {
      n = 0;
      for (const byte of b.subarray(at + 1, at + 1 + extra)) n = n * 256 + byte;
    }
    const isBytes = b[at] >> 5 === 2;
    at += 1 + extra + (isBytes ? n : 0);
  }
  return at;
}
