// What createWorld returns is a world of each version of the interface.
import type { World as World4 } from 'world-4';
import type { World as World5 } from 'world-5';
import type { World as World37 } from 'world-5-37';
import { createWorld } from '../index.js';

export const worlds: [World4, World5, World37] = [createWorld(), createWorld(), createWorld()];

const { streams, ...rest } = createWorld();
// @ts-expect-error: what lacks a part of the interface is no world, so the lines above check something.
export const less: World5 = rest;
const { writeToStream, ...other } = createWorld();
// @ts-expect-error
export const less4: World4 = other;
