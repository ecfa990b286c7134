// Files of other users, and paths that lead nowhere: one line that names the file; and what root does, the daemon's user goes on with.
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type Test } from 'tap';
import { startBuiltCommandAs } from '../support/command-process.ts';

const IS_ROOT = process.geteuid?.() === 0;
/** A user that owns nothing; this one itself where there is no changing it. */
const USER = IS_ROOT ? 65_534 : undefined;
const ANY_PORTS = ['--proxy-listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0'];

function openFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'kv-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  return folder;
}

async function runAs(uid: number | undefined, words: readonly string[]) {
  const command = startBuiltCommandAs(uid, words);
  const { code } = await command.exit;
  // Without what the daemon logs on its way.
  return { code, output: command.output().replaceAll(/^\{.*\n/gm, '') };
}

void test('a path that can not be used is named in one line, whatever the command', async (t) => {
  const folder = openFolder(t);
  const file = join(folder, 'file');
  writeFileSync(file, 'x');
  const closed = join(folder, 'closed');
  mkdirSync(join(closed, 'data'), { recursive: true });
  chmodSync(closed, 0);
  t.teardown(() => chmodSync(closed, 0o700));
  const backup = join(folder, 'backup.db');
  writeFileSync(backup, 'x');
  const commands = [
    ['serve', ...ANY_PORTS],
    ['backup', join(folder, 'new.db')],
    ['restore', backup],
    ['master-key', 'rotate'],
    ['admin-token', 'rotate'],
    ['vault', 'list'],
  ];
  const cases = [file, join(closed, 'data')].flatMap((dataDir) =>
    commands.map((words) => [...words, '--data-dir', dataDir]),
  );
  for (const words of cases) {
    const { code, output } = await runAs(USER, words);
    t.ok(code === 1 || (code === 69 && words[0] === 'vault'), `${words.join(' ')}: ${String(code)}`);
    t.match(output, /^keyveil: [^\n]+\n$/, 'one line');
    t.notMatch(output, /unexpected|node:fs| at \w+Sync/);
    t.ok(output.includes(folder), output);
  }
  const denied = await runAs(USER, ['serve', ...ANY_PORTS, '--data-dir', join(closed, 'data')]);
  t.match(denied.output, /closed\/data\S* can't be used \(EACCES, \w+\): \S*\/closed is in the way, and /);
  const notThere = await runAs(USER, ['serve', ...ANY_PORTS, '--data-dir', file]);
  t.match(notThere.output, /\/file can't be used \(ENOTDIR, lstat\): it is a file, and a directory is needed/);
});

void test(
  'what root does to the data directory, its user goes on with',
  { skip: IS_ROOT ? false : 'only root can be another user' },
  async (t) => {
    const folder = openFolder(t);
    const dataDir = join(folder, 'data');
    mkdirSync(dataDir, { mode: 0o700 });
    chownSync(dataDir, USER ?? 0, USER ?? 0);
    const serve = async (during: (adminPort: number) => Promise<void>) => {
      const daemon = startBuiltCommandAs(USER, ['serve', '--data-dir', dataDir, ...ANY_PORTS]);
      t.teardown(() => daemon.child.kill('SIGKILL'));
      await daemon.until('"msg":"Ready"');
      await during(Number(/"port":(\d+),"msg":"The admin API listens"/.exec(daemon.output())?.[1]));
      daemon.child.kill('SIGTERM');
      t.equal((await daemon.exit).code, 0);
    };
    const asRoot = async (...words: string[]) => {
      const outcome = await runAs(undefined, [...words, '--data-dir', dataDir]);
      t.equal(outcome.code, 0, `${words.join(' ')}: ${outcome.output}`);
      return outcome.output;
    };
    const backup = join(folder, 'backup.db');
    await serve(async (port) => {
      await asRoot('backup', backup);
      await asRoot('admin-token', 'rotate');
      const token = readFileSync(join(dataDir, 'admin-token'), 'latin1').trim();
      const ask = () => fetch(`http://127.0.0.1:${port}/v1/vaults`, { headers: { 'x-api-key': token } });
      t.equal((await ask()).status, 200, 'the daemon takes the new token');
      chownSync(join(dataDir, 'admin-token'), 0, 0);
      t.equal((await ask()).status, 401, 'one that it can not read is nobody’s');
      chownSync(join(dataDir, 'admin-token'), USER ?? 0, USER ?? 0);
      t.equal((await ask()).status, 200);
    });
    t.match(await asRoot('restore', backup, '--replace'), /The database before is /);
    rmSync(join(dataDir, 'keyveil.lock'));
    await asRoot('restore', backup, '--replace');
    await asRoot('master-key', 'rotate');
    for (const name of readdirSync(dataDir)) t.equal(statSync(join(dataDir, name)).uid, USER, name);
    await serve(async () => undefined);

    const before = readdirSync(dataDir);
    const daemon = startBuiltCommandAs(USER, ['serve', '--data-dir', dataDir, ...ANY_PORTS]);
    t.teardown(() => daemon.child.kill('SIGKILL'));
    await daemon.until('"msg":"Ready"');
    const refused = await runAs(undefined, ['master-key', 'rotate', '--data-dir', dataDir]);
    t.match(refused, { code: 1, output: /Another Keyveil process uses/ });
    t.notOk(existsSync(join(dataDir, 'master.key.next')), 'and nothing was made');
    daemon.child.kill('SIGTERM');
    await daemon.exit;
    chownSync(join(dataDir, 'keyveil.db'), 0, 0);
    const start = await runAs(USER, ['serve', '--data-dir', dataDir, ...ANY_PORTS]);
    t.match(start, {
      code: 1,
      output:
        /^keyveil: \S+keyveil\.db can't be used \(EACCES, open\): it belongs to user 0, and this is user \d+: run/,
    });
    t.strictSame(
      readdirSync(dataDir).filter((name) => !name.startsWith('keyveil.db') && !name.startsWith('audit.db')),
      before.filter((name) => !name.startsWith('keyveil.db') && !name.startsWith('audit.db')),
    );
  },
);
