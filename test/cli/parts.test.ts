// The command line's parts by themselves: arguments, help, dotenv files, variables, tables, names, secrets, events.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'tap';
import { findCommand, parseLine, refuseCommand } from '../../cli/arguments.ts';
import type { Json } from '../../cli/client.ts';
import { UsageError, type Command, type Invocation } from '../../cli/command.ts';
import { COMMANDS } from '../../cli/commands.ts';
import { parseDotenv } from '../../cli/dotenv.ts';
import { helpOfAll, helpOfCommand } from '../../cli/help.ts';
import { parseDuration, parsePairs, segment } from '../../cli/names.ts';
import { formatObject, formatTable } from '../../cli/output.ts';
import { readSecret } from '../../cli/secret-input.ts';
import { readEvents } from '../../cli/server-sent-events.ts';
import { formatVariables } from '../../cli/variables.ts';

function usageError(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  return 'no error';
}

function command(name: string): Command {
  const found = COMMANDS.find((candidate) => candidate.name === name);
  if (found === undefined) throw new Error(`no command ${name}`);
  return found;
}

void test('a command is found by its longest name; a misspelt one is answered with the nearest', async (t) => {
  t.same(findCommand(['vault', 'create', 'x'], COMMANDS)?.tail, ['x']);
  t.equal(findCommand(['audit', '--follow'], COMMANDS)?.command.name, 'audit');
  t.equal(findCommand(['vault'], COMMANDS), null);
  for (const [words, expected] of [
    [['vualt', 'list'], 'unknown command "vualt"'],
    [['vault', 'lst'], 'unknown command "vault lst": did you mean "vault list"?'],
    [['serv'], 'unknown command "serv": did you mean "serve"?'],
    [['env', 'create'], 'unknown command "env": did you mean "environment create"?'],
    [['vaults'], 'unknown command "vaults": did you mean "vault"?'],
    [['sesion', 'lst'], 'unknown command "sesion": did you mean "session list"?'],
    [['session', 'nothing-like-it'], 'unknown command "session nothing-like-it": keyveil --help'],
    [['xyz'], 'unknown command "xyz": keyveil --help'],
    [['\u001b[2J'], 'unknown command "\\u001b[2J": keyveil --help'],
  ] as const) {
    t.match(
      usageError(() => refuseCommand(words, COMMANDS)),
      expected,
    );
  }
});

void test('a flag of the command to run shows where -- belongs, and one of run itself is named', (t) => {
  const run = command('run');
  const words = ['--vault', 'work', 'sh', '-c', 'true'];
  t.equal(
    usageError(() => parseLine(run, words)),
    `unexpected argument "sh": keyveil run ${run.usage}`,
  );
  t.match(run.usage, /\] -- CMD ARGS$/);
  t.equal(
    usageError(() => parseLine(run, ['--nosuch', '--', 'sh', '-c', 'true'])),
    'unknown flag --nosuch of run: keyveil run --help lists the flags',
  );
  t.same(parseLine(run, ['--', ...words]).rest, words);
  t.end();
});

void test('flags are checked one by one, and each mistake names the flag', async (t) => {
  const create = command('credential create');
  const line = parseLine(create, ['NAME', '--host', 'a', '--host=b', '--json', '--vault', '-x']);
  t.same(line.positionals, ['NAME']);
  t.same([line.texts.get('host'), line.texts.get('vault'), line.switches.has('json')], [['a', 'b'], ['-x'], true]);
  for (const [words, expected] of [
    [['N', '--hots', 'a'], 'unknown flag --hots of credential create: did you mean --host?'],
    [['N', '-v'], 'unknown flag -v of credential create: keyveil credential create --help lists the flags'],
    [['N', '--__proto__', 'x'], 'unknown flag --__proto__'],
    [['N', '--vault'], '--vault needs a value: --vault NAME|ID'],
    [['N', '--vault', '--json'], '--vault needs a value'],
    [['N', '--vault', 'a', '--vault', 'b'], '--vault is given twice'],
    [['N', '--json=yes'], '--json takes no value, and got "yes"'],
    [['N', 'M'], 'unexpected argument "M"'],
    [[], 'credential create needs more arguments'],
    [['N', '--', 'x'], 'credential create takes nothing behind --'],
  ] as const) {
    t.ok(usageError(() => parseLine(create, words)).startsWith(expected), words.join(' '));
  }
  t.same(parseLine(command('run'), ['--vault', 'a', '--', 'sh', '-c', '--json']).rest, ['sh', '-c', '--json']);
  t.ok(parseLine(create, ['-h']).wantsHelp && parseLine(create, ['--help']).wantsHelp);
});

void test('help of every command has its usage, its flags and an example of itself', async (t) => {
  for (const each of COMMANDS) {
    const help = helpOfCommand(each);
    t.ok(help.includes(`Usage: keyveil ${each.name}`) && each.examples.length > 0, each.name);
    for (const flag of Object.keys(each.flags)) t.ok(help.includes(`--${flag}`), `${each.name} --${flag}`);
    for (const example of each.examples) {
      t.ok(example.includes(`keyveil ${each.name}`), example);
      // What stands behind the command's name in the example must parse, shell syntax left aside.
      const behind = example
        .slice(example.indexOf(`keyveil ${each.name}`) + 8 + each.name.length)
        .replace(/ [>|].*$/, '');
      const words = (behind.match(/"[^"]*"|'[^']*'|\S+/g) ?? []).map((word) => word.replace(/^(["'])(.*)\1$/, '$2'));
      t.doesNotThrow(() => parseLine(each, words), example);
    }
  }
  const serve = helpOfCommand(command('serve'));
  t.match(serve, /^ {2}--proxy-listen HOST:PORT +Address of the proxy \(default: 127\.0\.0\.1:7080\)$/m);
  t.match(serve, /docs\/configuration\.md/);
  for (const [name, flag] of Object.entries(command('serve').flags)) {
    t.match(flag.help, /^(?:file: )?[A-Za-z]\S* \S/, `--${name} is described`);
    t.equal(name.endsWith('-file'), flag.value === 'FILE', `--${name} ${flag.value ?? ''}`);
  }
  t.ok(COMMANDS.every((each) => helpOfAll(COMMANDS).includes(`\n  ${each.name} `)));
});

void test('dotenv files are read with their quotes, comments and line ends; mistakes are named by line, never quoted', async (t) => {
  const text = [
    '\ufeff# comment',
    '',
    'A=plain value # comment',
    'export B = a#b',
    "C='single $X \\n' # comment",
    'D="double \\n \\" \\\\ $X"',
    'E="line one',
    'line two"',
    'F=trailing   ',
    'G=a=b==\r',
    'H=last',
  ].join('\n');
  t.same(Object.fromEntries(parseDotenv(text, 'x').map(({ name, value }) => [name, value])), {
    ...{ A: 'plain value', B: 'a#b', C: 'single $X \\n', D: 'double \n " \\ $X', E: 'line one\nline two' },
    ...{ F: 'trailing', G: 'a=b==', H: 'last' },
  });
  for (const [bad, expected] of [
    ['A=1\nhunter2', 'x, line 2: not NAME=VALUE'],
    ['A="hunter2', 'x, line 1: a quote is not closed'],
    ["A='hunter2' tail", 'x, line 1: a quote is not closed, or something stands behind it'],
    ['\n\nA=', 'x, line 3: A has no value'],
    ['A= # hunter2', 'x, line 1: A has no value'],
    ['A=1\nA=2', 'x, line 2: A stands there twice'],
    ['# nothing', 'x holds no NAME=VALUE'],
  ] as const) {
    const message = usageError(() => parseDotenv(bad, 'x'));
    t.ok(message.startsWith(expected), `${message} for ${JSON.stringify(bad)}`);
    t.notMatch(message, 'hunter2');
  }
});

void test('variables are written as shells, dotenv, docker and programs read them', async (t) => {
  const variables = { A: 'http://u:p@h:1', B: "it's $x" };
  t.equal(formatVariables(variables, 'sh'), `export A=http://u:p@h:1\nexport B='it'\\''s $x'\n`);
  t.equal(formatVariables(variables, 'dotenv'), `A=http://u:p@h:1\nB="it's $x"\n`);
  t.equal(formatVariables(variables, 'docker'), `A=http://u:p@h:1\nB=it's $x\n`);
  t.same(JSON.parse(formatVariables(variables, 'json')), variables);
  t.match(
    usageError(() => formatVariables(variables, 'fish')),
    /--format must be one of sh, dotenv, docker, json, not "fish"/,
  );
});

void test('tables fit the terminal, never cut an id, and escape what others chose', async (t) => {
  const items = [{ id: 'vlt_0123456789', name: 'x'.repeat(50), note: 'a\u001b[31mb' }];
  const columns = [
    ['ID', (item: Json) => item['id']],
    ['NAME', (item: Json) => item['name']],
    ['NOTE', (item: Json) => item['note']],
  ] as const;
  const wide = formatTable(items, columns, null);
  t.match(wide, `vlt_0123456789  ${'x'.repeat(50)}  a\\u001b[31mb`);
  const lines = formatTable(items, columns, 50).trimEnd().split('\n');
  t.ok(
    lines.every((line) => line.length <= 50),
    'no line is wider than the terminal',
  );
  t.match(lines[1], /^vlt_0123456789 {2}x+… /);
  t.equal(
    formatObject({ id: 'a', auth: { hosts: ['x', 'y'], none: null }, empty: {} }),
    'id          a\nauth.hosts  x,y\nauth.none   -\nempty       -\n',
  );
});

void test('durations, pairs and pieces of a path are parsed', async (t) => {
  t.same(
    ['90', '15m', '12h', '7d', 'never'].map((text) => parseDuration('x', text)),
    [90, 900, 43_200, 604_800, null],
  );
  for (const text of ['', '0', '1w', '-1', '1.5h'])
    t.match(
      usageError(() => parseDuration('expires-in', text)),
      '--expires-in must be a time',
    );
  t.same(parsePairs('metadata', ['a=b=c', 'd=']), { a: 'b=c', d: '' });
  t.match(
    usageError(() => parsePairs('metadata', ['=x'])),
    '--metadata must be KEY=VALUE',
  );
  t.equal(segment('../x?y'), '..%2Fx%3Fy');
});

function invocationWith(
  stdin: Readable & { isTTY?: boolean; setRawMode?(mode: boolean): void },
  flags: Record<string, string> = {},
) {
  const shown: string[] = [];
  const terminal = { stdin, out: async () => undefined, err: (text: string) => void shown.push(text), columns: null };
  return { invocation: { terminal, cwd: '/', flag: (name: string) => flags[name] } as unknown as Invocation, shown };
}

void test('a secret is read from standard input, a file, or a person who types it unseen', async (t) => {
  const read = (chunks: (string | Buffer)[]) => readSecret(invocationWith(Readable.from(chunks)).invocation, 'Value: ');
  t.equal(await read(['se', 'cret\n']), 'secret', 'one line end is not part of it');
  t.equal(await read(['line one\nline two\r\n']), 'line one\nline two');
  await t.rejects(read(['']), /the secret is empty/);
  await t.rejects(read([Buffer.from([0xff, 0xfe])]), /standard input is not UTF-8/);
  const folder = t.testdir({ secret: 'from file\n' });
  const fromFile = (name: string) =>
    readSecret(invocationWith(Readable.from([]), { 'from-file': join(folder, name) }).invocation, '');
  t.equal(await fromFile('secret'), 'from file');
  await t.rejects(fromFile('none'), /--from-file names the file .*none, which can't be read \(ENOENT\)/);
  writeFileSync(join(folder, 'binary'), Buffer.from([0xff]));
  await t.rejects(fromFile('binary'), /is not UTF-8/);

  const modes: boolean[] = [];
  const typed = (keys: string[]) =>
    invocationWith(
      Object.assign(Readable.from(keys), { isTTY: true, setRawMode: (mode: boolean) => void modes.push(mode) }),
    );
  const person = typed(['sx', '\u007f', 'ecret', '\r', 'rest']);
  t.equal(await readSecret(person.invocation, 'Value: '), 'secret');
  t.same(modes, [true, false], 'the echo is off while typing, and on again');
  t.same(person.shown, ['Value: ', '\n'], 'nothing of it is shown');
  await t.rejects(readSecret(typed(['se\u0003']).invocation, ''), /given up/);
});

void test('server-sent events are read whatever their chunks; a cut one is dropped', async (t) => {
  const text = ': comment\n\nid: 7\nevent: x\ndata: {"a":\ndata: 1}\n\nid: 8\r\ndata:ü\r\n\r\ndata: cut';
  for (const size of [1, 3, 1000]) {
    const bytes = Buffer.from(text);
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
      bytes.subarray(index * size, (index + 1) * size),
    );
    const events = [];
    for await (const event of readEvents(Readable.from(chunks, { objectMode: true }))) events.push(event);
    t.same(
      events,
      [
        { id: '7', data: '{"a":\n1}' },
        { id: '8', data: 'ü' },
      ],
      `chunks of ${size}`,
    );
  }
});

void test('an audit row that stands for many refusals shows how many', async (t) => {
  const base = { created_at: 'now', method: 'CONNECT', path: '', status: 407, outcome: 'refused', reason: 'x' };
  const events = [
    { ...base, host: '', port: 0, repeated: { client_address: '10.0.0.9', count: 41 } },
    { ...base, host: 'api.test', port: 443, repeated: { client_address: '10.0.0.9', count: 1 } },
    { ...base, host: 'api.test', port: 443 },
  ];
  let out = '';
  const list = async function* () {
    yield* events;
  };
  const invocation = {
    terminal: { out: async (text: string) => void (out += text), columns: null },
    flag: () => undefined,
    isOn: () => false,
    client: () => ({ list }),
  };
  await command('audit').run(invocation as unknown as Invocation);
  t.match(out, / CONNECT api\.test:443 +-\n/);
  t.match(out, / CONNECT api\.test:443 from 10\.0\.0\.9 /);
  t.match(out, / CONNECT × 41 from 10\.0\.0\.9 /);
});
