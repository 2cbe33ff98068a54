import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.js'],
    setupFiles: ['test/setup.js'],
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});
