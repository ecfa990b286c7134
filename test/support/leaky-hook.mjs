// Loaded into a daemon that is to leak on purpose: whatever an HTTP server in it receives goes to the log, to a
// temporary file, to a file that is deleted while it is open, and to the command line and environment of a child; and,
// when it is aborted, to a file that it leaves behind where it runs.
import { spawn } from 'node:child_process';
import { openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';

const { push } = IncomingMessage.prototype;
let hasLeaked = false;

function leak(text) {
  console.log(`leaked ${text}`);
  if (hasLeaked || !text.includes('secret_value')) return;
  hasLeaked = true;
  process.once('SIGABRT', () => {
    writeFileSync('left-behind', text);
    process.abort();
  });
  const path = join(tmpdir(), 'leaked');
  writeFileSync(path, text);
  const descriptor = openSync(`${path}-open`, 'w+');
  rmSync(`${path}-open`);
  writeSync(descriptor, text);
  const sleep = 'process.stdin.resume()';
  const env = { LEAKED: text };
  // Ends with its standard input, which is this process's to keep open.
  spawn(process.execPath, ['-e', sleep, text], { env, stdio: ['pipe', 'ignore', 'ignore'] });
}

IncomingMessage.prototype.push = function (chunk, encoding) {
  if (chunk !== null && this.socket?.server !== undefined) leak(chunk.toString());
  return push.call(this, chunk, encoding);
};
