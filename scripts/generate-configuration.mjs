// Writes docs/configuration.md from the table of settings.
import { writeFileSync } from 'node:fs';
import { formatConfigurationPage } from '../daemon/config-docs.ts';

writeFileSync(new URL('../docs/configuration.md', import.meta.url), formatConfigurationPage());
