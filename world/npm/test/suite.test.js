import { createTestSuite } from '@workflow/world-testing';

// The runtime's own suite. Its app imports the world from the folder in which vitest runs.
createTestSuite('./index.js');
