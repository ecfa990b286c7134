// Compiles the product folders into dist/, copies the migrations there, and removes what a deleted source left behind.
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';

const dist = 'dist';
process.chdir(join(import.meta.dirname, '..'));

const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const compiled = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json'], { stdio: 'inherit' });
if (compiled.status !== 0) process.exit(compiled.status ?? 1);

// dist/ is never emptied first: a daemon or a test may be running from it.
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name);
  const source = path.slice(dist.length + 1).replace(/\.js(\.map)?$/, '.ts');
  if (entry.isFile() && !existsSync(source)) rmSync(path);
}
if (existsSync('migrations')) cpSync('migrations', join(dist, 'migrations'), { recursive: true });
if (existsSync('cli/keyveil.sh')) cpSync('cli/keyveil.sh', 'dist/cli/keyveil.sh');
for (const program of ['dist/cli/keyveil.sh', 'dist/cli/main.js']) if (existsSync(program)) chmodSync(program, 0o755);
