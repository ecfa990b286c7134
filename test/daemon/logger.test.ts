// The log: a closed list of fields, errors without their messages, and lines that can't steer a terminal.
import { inspect } from 'node:util';
import { test } from 'tap';
import { createLogger, type LogLevel } from '../../daemon/logger.ts';
import { KeyveilError, StartError } from '../../model/errors.ts';
import type { LogFields } from '../../model/ports.ts';

function capture(level: LogLevel, pretty = false, isTTY = true) {
  const lines: string[] = [];
  const logger = createLogger({ level, pretty, destination: { isTTY, write: (line: string) => lines.push(line) > 0 } });
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- lines are looked into freely
  return { logger, lines, last: () => JSON.parse(lines.at(-1) ?? '{}') as Record<string, any> };
}

void test('a line has its level, time, message, and the known fields alone', async (t) => {
  const { logger, last } = capture('debug');
  const fields = {
    host: 'a.example',
    port: 443,
    durationMs: 1.5,
    body: 'hunter2',
    headers: { a: 'hunter2' },
  } as LogFields;
  logger.info(fields, 'hello');
  const { time, ...line } = last();
  t.match(time, /^\d{4}-\d\d-\d\dT.*Z$/);
  t.same(line, { level: 'info', host: 'a.example', port: 443, durationMs: 1.5, msg: 'hello' });
  logger.warn({ path: 'x'.repeat(600), host: { toString: () => 'hunter2' } as unknown as string }, 'y'.repeat(2000));
  t.equal(last()['path'].length, 513, 'long text is cut');
  t.equal(last()['msg'].length, 1025);
  t.notOk('host' in last(), 'a field of the wrong type is left out');
});

void test('lines below the level are not written', async (t) => {
  const { logger, lines } = capture('warn');
  logger.debug({}, 'no');
  logger.info({}, 'no');
  logger.warn({}, 'yes');
  logger.error({}, 'yes');
  t.equal(lines.length, 2);
  const silent = capture('silent');
  silent.logger.error({}, 'no');
  t.same(silent.lines, []);
});

void test('an error is told by class, code and frames; its message only when it is one of ours', async (t) => {
  const { logger, last, lines } = capture('debug');
  const cause = Object.assign(new TypeError('Unexpected token hunter2\n    at hunter2 (hunter2:1:1)'), {
    code: 'ERR_X',
  });
  logger.error({ error: new Error('secret hunter2', { cause }) }, 'failed');
  const { error } = last();
  t.equal(error.name, 'Error');
  t.match(error.frames[0], /^at .*logger\.test\.ts/);
  t.match(error.cause, { name: 'TypeError', code: 'ERR_X' });
  t.notMatch(lines.join(''), 'hunter2', 'not even a message that looks like a frame');
  logger.error({ error: new KeyveilError('not_found', 'No such vault.') }, 'failed');
  t.match(last()['error'], { name: 'KeyveilError', code: 'not_found', message: 'No such vault.' });
  logger.error({ error: new StartError('The port is in use.') }, 'failed');
  t.equal(last()['error'].message, 'The port is in use.');
  logger.error({ error: 'hunter2' }, 'failed');
  t.same(last()['error'], { name: 'thrown string' });
  logger.error(
    { error: Object.assign(new Error('x'), { code: 'hunter2 with blanks', name: 'hunter2 name' }) },
    'failed',
  );
  t.notMatch(lines.join(''), 'hunter2');
  const endless = new Error('a');
  endless.cause = endless;
  logger.error({ error: endless }, 'a chain without end is cut');
  t.ok((lines.at(-1)?.length ?? 0) < 20_000, inspect(lines.at(-1)?.length));
});

void test('lines for people escape what others chose', async (t) => {
  const { logger, lines } = capture('debug', true);
  logger.warn(
    {
      path: '/\u001b]0;owned\u0007',
      host: 'a.example',
      error: new StartError('bad \u001b[2J', { cause: new Error('x') }),
    },
    'hi \u001b[2J',
  );
  const [line = ''] = lines;
  t.match(
    line,
    /WARN .*hi \\u001b\[2J host=a\.example path="\/\\u001b\]0;owned\\u0007"\n {4}StartError bad \\u001b\[2J\n/,
  );
  const rest = line.replace('\u001b[33m', '').replace('\u001b[0m', '');
  t.notMatch(rest, /[\u0000-\u0009\u000b-\u001f]/, 'no control character but its own colours');

  const redirected = capture('debug', true, false);
  redirected.logger.warn({ host: 'a.example' }, 'hi');
  t.match(redirected.lines[0], /^[0-9:.]+ WARN {2}hi host=a\.example\n$/, 'no colours where no terminal shows them');
});
