import { Encoder } from 'cbor-x';

// Objects are maps of CBOR, and bytes are byte strings without a tag, as the server expects them.
const cbor = new Encoder({
  useRecords: false,
  variableMapSize: true,
  tagUint8Array: false,
  copyBuffers: true,
});

/**
 * @param {unknown} value
 * @returns {Uint8Array} CBOR
 */
export function encode(value) {
  return cbor.encode(value);
}

/**
 * Bytes in the value are plain Uint8Arrays. A Buffer would become an object of numbers in JSON, because it
 * has a toJSON method.
 * @param {Uint8Array} bytes CBOR
 * @returns {any}
 */
export function decode(bytes) {
  return cbor.decode(plain(bytes));
}

/**
 * @param {Uint8Array} bytes
 * @returns {Uint8Array} the same bytes, which are no Buffer
 */
export function plain(bytes) {
  return bytes.constructor === Uint8Array
    ? bytes
    : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * JSON in which bytes are objects, as runtimes expect them in messages.
 * @param {unknown} value
 * @param {(n: bigint) => unknown} [integer] what a bigint becomes; nothing: it cannot be written
 */
export function toJSON(value, integer = (n) => n) {
  return JSON.stringify(value, (_, v) => {
    if (v instanceof Uint8Array) return { __type: 'Uint8Array', data: Buffer.from(v.buffer, v.byteOffset, v.byteLength).toString('base64') };
    return typeof v === 'bigint' ? integer(v) : v;
  });
}

/**
 * @param {string} text of toJSON
 * @returns {any}
 */
export function fromJSON(text) {
  return JSON.parse(text, (_, v) =>
    v !== null && typeof v === 'object' && v.__type === 'Uint8Array' && typeof v.data === 'string'
      ? new Uint8Array(Buffer.from(v.data, 'base64'))
      : v,
  );
}
