// keyveil audit: what was asked, swapped, missed and refused, as a list or live.
import { escapeControls } from '../model/printable.ts';
import { asObject, UnreachableError, type Json } from './client.ts';
import { JSON_FLAGS, UsageError, type Command, type CommandFlag, type Invocation } from './command.ts';
import { formatTable, type Column } from './output.ts';
import { readEvents } from './server-sent-events.ts';

const FILTERS: Readonly<Record<string, string>> = {
  session: 'session_id',
  credential: 'credential_id',
  host: 'host',
  outcome: 'outcome',
  since: 'created_at_gte',
  until: 'created_at_lt',
};
const FLAGS: Readonly<Record<string, CommandFlag>> = {
  follow: { type: 'boolean', help: 'go on with new events as they happen' },
  session: { type: 'string', value: 'ID', help: 'of this session' },
  credential: { type: 'string', value: 'ID', help: 'with this credential' },
  host: { type: 'string', value: 'HOST', help: 'to this host' },
  outcome: { type: 'string', value: 'forwarded|relayed|refused|failed', help: 'with this outcome' },
  since: { type: 'string', value: 'TIME', help: 'from this time on, such as 2026-01-31T12:00:00Z' },
  until: { type: 'string', value: 'TIME', help: 'before this time' },
  limit: { type: 'string', value: 'N', help: 'at most so many past events (default: 50; 0 with --follow)' },
};
const RECONNECT_DELAY_MS = 1000;

function records(event: Json, name: string): Json[] {
  const value = event[name];
  return Array.isArray(value) ? value.map(asObject) : [];
}

// A row that stands for several refusals.
function repetitionOf(event: Json): string {
  const { count, client_address: address } = asObject(event['repeated']);
  if (typeof count !== 'number') return '';
  return ` ${count === 1 ? '' : `× ${count} `}from ${String(address)}`;
}

function destinationOf(event: Json): string {
  if (event['type'] === 'admin_event') return `${String(event['action'])} ${String(event['object_id'])}`;
  const host = String(event['host']);
  const target = host === '' ? '' : ` ${host}:${String(event['port'])}${String(event['path'])}`;
  return `${String(event['method'])}${target}${repetitionOf(event)}`;
}

function secretsOf(event: Json): string {
  const swaps = records(event, 'swaps').map(
    (swap) => `${String(swap['secret_name'])} swapped in ${String(swap['location'])}`,
  );
  const misses = records(event, 'misses').map(
    (miss) => `${String(miss['secret_name'])} not swapped: ${String(miss['reason'])}`,
  );
  const veils = records(event, 'veils').map((veil) => `${String(veil['count'])} veiled`);
  return [...swaps, ...misses, ...veils].join('; ');
}

const COLUMNS: readonly Column[] = [
  ['TIME', (event) => event['created_at']],
  ['OUTCOME', (event) => event['outcome'] ?? 'admin'],
  ['STATUS', (event) => event['status']],
  ['REASON', (event) => event['reason']],
  ['WHAT', destinationOf],
  ['SECRETS', secretsOf],
];

function lineOf(event: Json): string {
  const cells = COLUMNS.map(([, read]) => read(event)).filter(
    (cell) => cell !== null && cell !== undefined && cell !== '',
  );
  return `${cells.map((cell) => escapeControls(String(cell as string | number))).join('  ')}\n`;
}

function limitOf(invocation: Invocation): number {
  const text = invocation.flag('limit') ?? (invocation.isOn('follow') ? '0' : '50');
  if (!/^[0-9]{1,6}$/.test(text))
    throw new UsageError(`--limit must be a whole number up to 999999, not ${JSON.stringify(text)}`);
  return Number(text);
}

async function printPast(invocation: Invocation, query: Readonly<Record<string, string>>): Promise<void> {
  const limit = limitOf(invocation);
  const events: Json[] = [];
  if (limit > 0) {
    for await (const event of invocation
      .client()
      .list('/v1/audit_events', { query: { ...query, limit: String(Math.min(limit, 100)) } })) {
      events.push(event);
      if (events.length >= limit) break;
    }
  }
  events.reverse();
  if (invocation.isOn('json'))
    await invocation.terminal.out(events.map((event) => `${escapeControls(JSON.stringify(event))}\n`).join(''));
  else if (!invocation.isOn('follow'))
    await invocation.terminal.out(formatTable(events, COLUMNS, invocation.terminal.columns));
  else await invocation.terminal.out(events.map(lineOf).join(''));
}

async function follow(invocation: Invocation, query: Readonly<Record<string, string>>): Promise<never> {
  const path = `/v1/audit_events/stream?${new URLSearchParams(query).toString()}`;
  let lastEventId: string | undefined;
  for (;;) {
    const stream = await invocation.client().stream(path, lastEventId === undefined ? {} : { lastEventId });
    for await (const event of readEvents(stream)) {
      lastEventId = event.id ?? lastEventId;
      const json = asObject(JSON.parse(event.data));
      await invocation.terminal.out(
        invocation.isOn('json') ? `${escapeControls(JSON.stringify(json))}\n` : lineOf(json),
      );
    }
    // The daemon went away or was restarted: go on behind the last event once it is back, and give up when it is not.
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_DELAY_MS));
    if (lastEventId === undefined)
      throw new UnreachableError(`The daemon at ${invocation.client().address} ended the stream`);
  }
}

export const AUDIT_COMMANDS: readonly Command[] = [
  {
    name: 'audit',
    summary: 'Show the audit log, oldest first, or follow it live',
    usage: '[--follow] [--session ID]',
    examples: ['keyveil audit --outcome refused --limit 20', 'keyveil audit --follow --json'],
    flags: { ...JSON_FLAGS, ...FLAGS },
    positionals: { min: 0, max: 0 },
    async run(invocation) {
      const query = Object.fromEntries(
        Object.entries(FILTERS).flatMap(([flag, name]) => {
          const text = invocation.flag(flag);
          return text === undefined ? [] : [[name, text]];
        }),
      );
      await printPast(invocation, query);
      return invocation.isOn('follow') ? follow(invocation, query) : 0;
    },
  },
];
