// Programs that some tests need and that a machine may lack.
import { spawnSync } from 'node:child_process';

/** `false` when the program is there, else why the test is skipped; for tap's `skip` option. */
export function skipWithout(program: string, versionArgument = '--version'): false | string {
  return spawnSync(program, [versionArgument]).status === 0 ? false : `${program} is not installed`;
}
