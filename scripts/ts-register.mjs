// Lets Node.js 20 load TypeScript sources as they are (`node --import ./scripts/ts-register.mjs file.ts`); later ones can.
import { register } from 'node:module';

if (!('typescript' in process.features && process.features.typescript)) register('./ts-hooks.mjs', import.meta.url);
