// keyveil doctor: is the daemon well, and do the clients on this machine go through it and trust its CA?
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describeCertificates } from './ca.ts';
import { ApiError, type AdminClient, type Json } from './client.ts';
import { CLIENT_FLAGS, UsageError, type Command, type Invocation } from './command.ts';
import { openCountingRelay, whyUnreachable } from './counting-relay.ts';
import { askBy, CLIENT_PROGRAMS, isInstalled } from './doctor-clients.ts';
import { segment, textOf } from './names.ts';
import { createSession } from './session.ts';
import { makeTemporaryFolder } from './temporary-folder.ts';
import { variablesOf, type Environment } from './variables.ts';

type Verdict = 'ok' | 'warning' | 'failed';

interface Finding {
  readonly what: string;
  readonly verdict: Verdict;
  readonly words: string;
}

const MARKS: Readonly<Record<Verdict, string>> = { ok: '✓', warning: '!', failed: '✗' };
const TARGET_DEFAULT = 'https://example.com/';
const PATH_PREFIX = '/keyveil-doctor';
// Before this program was written no clock can be right.
const CLOCK_EARLIEST_MS = Date.UTC(2026, 0, 1);

async function checkReady(client: AdminClient): Promise<Finding> {
  try {
    await client.call('GET', '/readyz');
    return {
      what: 'daemon',
      verdict: 'ok',
      words: `answers at ${client.address}; store, master key and proxy are ready`,
    };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { what: 'daemon', verdict: 'failed', words: `is not ready: ${error.message}` };
  }
}

async function checkCa(client: AdminClient): Promise<Finding> {
  const [ca] = describeCertificates(await client.text('/v1/ca.pem'));
  const from = Date.parse(textOf(ca ?? {}, 'not_before'));
  const to = Date.parse(textOf(ca ?? {}, 'not_after'));
  const isValid = from <= Date.now() && Date.now() < to;
  const words = `${textOf(ca ?? {}, 'subject')}, valid until ${textOf(ca ?? {}, 'not_after')}`;
  return {
    what: 'CA',
    verdict: isValid ? 'ok' : 'failed',
    words: isValid ? words : `${words}, from ${textOf(ca ?? {}, 'not_before')}: not valid now`,
  };
}

function checkClock(): Finding {
  const now = new Date();
  const isPlausible = now.getTime() >= CLOCK_EARLIEST_MS;
  return {
    what: 'clock',
    verdict: isPlausible ? 'ok' : 'failed',
    words: isPlausible ? now.toISOString() : `${now.toISOString()} is in the past: certificates will not be valid`,
  };
}

/** What the audit log and the relay say of the one request of a client. */
function judge(name: string, seen: { events: readonly Json[]; connections: number | null }, advice: string): Finding {
  const { events, connections } = seen;
  const isOwn = (event: Json): boolean => textOf(event, 'path').startsWith(`${PATH_PREFIX}/${name}`);
  if (events.some(isOwn)) return { what: name, verdict: 'ok', words: 'goes through the proxy and trusts the CA' };
  if (connections === 0) return { what: name, verdict: 'warning', words: `does not go through the proxy: ${advice}` };
  if (connections === null && events.length === 0) {
    return {
      what: name,
      verdict: 'warning',
      words: `does not go through the proxy, or does not trust the CA: ${advice}`,
    };
  }
  // A CONNECT that was refused ends before any certificate is shown.
  const refused = events.find((event) => event['status'] !== null && event['status'] !== 200);
  if (refused !== undefined) {
    const reason = textOf(refused, 'reason');
    const words = `goes through the proxy; whether it trusts the CA is not known, since the target was refused (${reason}): name another by --target`;
    return { what: name, verdict: 'warning', words };
  }
  return { what: name, verdict: 'warning', words: `goes through the proxy, but does not trust the CA: ${advice}` };
}

async function listEvents(client: AdminClient, sessionId: string): Promise<Json[]> {
  const events: Json[] = [];
  for await (const event of client.list('/v1/audit_events', { query: { session_id: sessionId } })) {
    if (event['type'] === 'audit_event') events.push(event);
  }
  return events;
}

function proxyOf(variables: Environment): { host: string; port: number } {
  const url = new URL(variables['HTTPS_PROXY'] ?? '');
  const defaultPort = url.protocol === 'https:' ? 443 : 80;
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) || defaultPort };
}

/** The variables with the relay in place of the proxy; an `https://` proxy must be called by its own name, and stays. */
function throughRelay(variables: Environment, port: number): Environment {
  const entries = Object.entries(variables).map(([name, value]): [string, string] => {
    return [
      name,
      /^(?:https?|all)_proxy$/i.test(name) ? value.replace(/^(http:\/\/[^@]*@).*$/, `$1127.0.0.1:${port}`) : value,
    ];
  });
  return Object.fromEntries(entries);
}

/** Opens a session for one check, and archives it however that ends. */
async function withSession<Result>(
  client: AdminClient,
  fields: Json,
  work: (session: { id: string; variables: Environment }) => Promise<Result>,
): Promise<Result> {
  const wish = { vaults: [], environment: undefined, fields: { ...fields, expires_in: 300 } };
  const session = await createSession(client, wish);
  const id = textOf(session, 'id');
  try {
    return await work({ id, variables: variablesOf(session) });
  } finally {
    await client.call('POST', `/v1/sessions/${segment(id)}/archive`, { body: {} });
  }
}

/** Whether the proxy is where sandboxes are told that it is, as seen from here. */
function checkProxy(client: AdminClient): Promise<Finding> {
  return withSession(client, { title: 'keyveil doctor proxy' }, async ({ variables }) => {
    const { protocol, host } = new URL(variables['HTTPS_PROXY'] ?? '');
    const what = 'proxy';
    const problem = await whyUnreachable(proxyOf(variables));
    if (problem === null) return { what, verdict: 'ok', words: `can be reached at ${protocol}//${host}` };
    const words = `${protocol}//${host}, which sandboxes are told to use, can't be reached from here: ${problem}. Check KEYVEIL_ADVERTISED_PROXY_URL, or run doctor where sandboxes run; no client was tried`;
    return { what, verdict: 'failed', words };
  });
}

/** One session per client, so that its events are known by their session. */
async function checkClient(
  client: AdminClient,
  name: string,
  place: { folder: string; target: string; env: Environment },
): Promise<Finding> {
  const program = CLIENT_PROGRAMS.find((candidate) => candidate.name === name);
  if (program === undefined || !(await isInstalled(program, place.env)))
    return { what: name, verdict: 'ok', words: 'is not installed here' };
  const fields = { ca_directory: place.folder, title: `keyveil doctor ${name}` };
  return withSession(client, fields, async ({ id, variables }) => {
    // A proxy that speaks TLS must be called by the name in its certificate, so nothing is put in front of it.
    const isCounted = variables['HTTPS_PROXY']?.startsWith('http:') === true;
    const relay = await openCountingRelay(proxyOf(variables));
    try {
      const url = new URL(`${PATH_PREFIX}/${name}`, place.target).href;
      await askBy(program, url, { ...place.env, ...throughRelay(variables, relay.port) });
      return judge(
        name,
        { events: await listEvents(client, id), connections: isCounted ? relay.connections() : null },
        program.advice,
      );
    } finally {
      await relay.close();
    }
  });
}

function targetOf(invocation: Invocation): string {
  const target = invocation.flag('target') ?? TARGET_DEFAULT;
  if (!URL.canParse(target) || new URL(target).protocol !== 'https:')
    throw new UsageError(`--target must be an https:// URL, not ${JSON.stringify(target)}`);
  return target;
}

async function run(invocation: Invocation): Promise<number> {
  const target = targetOf(invocation);
  const client = invocation.client();
  let hasFailed = false;
  const report = async ({ what, verdict, words }: Finding): Promise<void> => {
    hasFailed ||= verdict === 'failed';
    await invocation.terminal.out(`${MARKS[verdict]} ${what.padEnd(8)} ${words}\n`);
  };
  await report(await checkReady(client));
  await report(await checkCa(client));
  await report(checkClock());
  const proxy = await checkProxy(client);
  await report(proxy);
  // What the clients would say of a proxy that is not there says nothing of them.
  if (proxy.verdict === 'failed') return 1;
  const folder = makeTemporaryFolder('keyveil-doctor-');
  try {
    for (const name of ['ca.pem', 'ca-bundle.pem']) {
      await writeFile(join(folder, name), await client.text(`/v1/${name}`), { flag: 'wx', mode: 0o600 });
    }
    const inherited = Object.entries(invocation.env).filter(([name]) => !name.startsWith('KEYVEIL_'));
    const env = Object.fromEntries(inherited.filter((entry): entry is [string, string] => entry[1] !== undefined));
    for (const { name } of CLIENT_PROGRAMS) await report(await checkClient(client, name, { folder, target, env }));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return hasFailed ? 1 : 0;
}

export const DOCTOR_COMMANDS: readonly Command[] = [
  {
    name: 'doctor',
    summary:
      'Check the daemon, its key, CA and clock, and whether sandboxes can reach it, and the clients found here go through it and trust it',
    usage: '[--target URL]',
    examples: ['keyveil doctor --target https://example.com/'],
    flags: {
      ...CLIENT_FLAGS,
      target: { type: 'string', value: 'URL', help: `where the clients are sent (default: ${TARGET_DEFAULT})` },
    },
    positionals: { min: 0, max: 0 },
    run,
  },
];
