import * as classes from '@workflow/errors';
import { SPEC_VERSION_CURRENT } from '@workflow/world';
import { makeWorld } from './lib/world.js';

/** @typedef {import('./lib/world.js').Options} Options */

/**
 * Returns a world that keeps runs on a Weft server. Its version of the interface is that of the package
 * `@workflow/world` beside it.
 * @param {Options} [options]
 */
export function createWorld(options = {}) {
  return makeWorld(SPEC_VERSION_CURRENT, classes, options);
}
