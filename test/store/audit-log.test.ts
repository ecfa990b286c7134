// The audit log: everything that was recorded is stored, in bounded memory, and found again by every filter.
import { EventEmitter, once } from 'node:events';
import { join } from 'node:path';
import { test } from 'tap';
import type { AuditEvent } from '../../model/audit.ts';
import { AUDIT_BATCH_EVENTS_MAX, AUDIT_TEXT_CHARACTERS_MAX } from '../../model/limits.ts';
import type { FromWriter, ToWriter } from '../../store/audit-messages.ts';
import { createAuditBatches } from '../../store/audit-batches.ts';
import { openAuditLog, type AuditLogOptions } from '../../store/audit-log.ts';
import { createAuditQueue } from '../../store/audit-queue.ts';
import { toAuditRow, toBatch } from '../../store/audit-rows.ts';
import { AuditThread } from '../../store/audit-thread.ts';
import { serveAuditWriter } from '../../store/audit-writer.ts';
import { AUDIT_DATABASE, openConnection, openOwnedDatabase } from '../../store/database.ts';
import { AUDIT_MIGRATIONS, migrate } from '../../store/migrate.ts';
import { createManualClock } from '../support/manual-clock.ts';
import {
  createMemoryLogger,
  createTemporaryDirectory,
  openTestStore,
  START_MS,
  newCredential,
} from '../support/store.ts';

let count = 0;

function newEvent(overrides: Partial<AuditEvent> = {}): AuditEvent {
  count += 1;
  return {
    id: `aud_${count}`,
    createdAt: START_MS + count,
    sessionId: 'sesn_1',
    method: 'GET',
    scheme: 'https',
    host: 'api.example.com',
    port: 443,
    path: '/v1',
    httpVersion: '1.1',
    status: 200,
    outcome: 'forwarded',
    reason: null,
    durationMs: 1.5,
    requestBytes: 0,
    responseBytes: 10,
    swaps: [],
    misses: [],
    veils: [],
    ...overrides,
  };
}

interface Teardown {
  teardown(work: () => unknown): void;
}

function createLogFile(t: Teardown): string {
  const path = join(createTemporaryDirectory(t), 'audit.db');
  const { database } = openOwnedDatabase(path, AUDIT_DATABASE);
  migrate(database, AUDIT_MIGRATIONS, START_MS);
  database.close();
  return path;
}

async function openTestLog(t: Teardown, overrides: Partial<AuditLogOptions> = {}) {
  const { logger, lines } = createMemoryLogger();
  const clock = createManualClock(START_MS);
  const path = createLogFile(t);
  const log = await openAuditLog({ path, clock, logger, retention: { days: 30, bytesMax: 2 ** 31 }, ...overrides });
  return { log, lines, clock, path };
}

const swap = (credentialId: string) => ({
  credentialId,
  secretName: 'A',
  secretVersion: 1,
  location: 'header' as const,
  count: 1,
});

test('what was recorded is found by each filter, page by page', async (t) => {
  const { log } = await openTestLog(t);
  t.teardown(() => log.close());
  const miss = { credentialId: 'vcrd_b', secretName: 'B', location: 'path' as const, reason: 'in_url' as const };
  const first = newEvent({ swaps: [swap('vcrd_a'), swap('vcrd_a')] });
  const second = newEvent({
    sessionId: 'sesn_2',
    host: 'other.example',
    misses: [miss],
    veils: [{ credentialId: 'vcrd_a', count: 2 }],
  });
  const third = newEvent({ sessionId: null, outcome: 'refused', reason: 'environment_denied', status: 403 });
  const admin = {
    id: 'aud_admin',
    createdAt: START_MS + 10_000.7,
    actor: 'admin_token',
    action: 'vault.create',
    objectId: 'vlt_1',
    requestId: 'req_1',
  };
  for (const event of [first, second, third]) log.record(event);
  log.recordAdmin(admin);
  t.equal(log.depth(), 4);
  await log.flush();
  t.equal(log.depth(), 0);
  await log.flush();
  t.equal(await log.lastSequence(), 4);
  const ids = async (query: object) =>
    (await log.list({ limit: 10, after: null, ...query })).items.map(({ entry }) => entry.id);
  const [a, b, c] = [first.id, second.id, third.id];
  t.strictSame(await ids({}), ['aud_admin', c, b, a]);
  t.strictSame(await ids({ sessionId: 'sesn_1' }), [a]);
  t.strictSame(await ids({ credentialId: 'vcrd_a' }), [b, a]);
  t.strictSame(await ids({ credentialId: 'vcrd_a', sessionId: 'sesn_2' }), [b]);
  t.strictSame(await ids({ host: 'other.example' }), [b]);
  t.strictSame(await ids({ outcome: 'refused' }), [c]);
  t.strictSame(await ids({ outcome: 'forwarded' }), [b, a]);
  t.strictSame(await ids({ createdAtGte: second.createdAt }), ['aud_admin', c, b]);
  t.strictSame(await ids({ createdAtLt: third.createdAt }), [b, a]);
  t.strictSame(await ids({ createdAtGte: second.createdAt, createdAtLt: third.createdAt, outcome: 'forwarded' }), [b]);
  t.strictSame(await ids({ createdAtGte: START_MS + 20_000 }), []);
  const pages: string[][] = [];
  for (let after: string | null = null, page = 0; page === 0 || after !== null; page += 1) {
    const { items, next } = await log.list({ limit: 2, after, createdAtGte: 0 });
    pages.push(items.map(({ entry }) => entry.id));
    after = next;
  }
  t.strictSame(pages, [
    ['aud_admin', c],
    [b, a],
  ]);
  t.strictSame(
    (await log.list({ limit: 1, after: '3' })).items.map(({ sequence }) => sequence),
    [2],
  );
  for (const after of ['', '0', '-1', '1.5', 'x', '9'.repeat(20)]) {
    await t.rejects(log.list({ limit: 1, after }), { code: 'invalid_page' });
    await t.rejects(log.list({ limit: 1, after, createdAtGte: 0 }), { code: 'invalid_page' });
  }
  const since = await log.listSince(1, { limit: 2 });
  t.strictSame(
    since.map(({ sequence, entry }) => [sequence, entry.id]),
    [
      [2, b],
      [3, c],
    ],
  );
  t.strictSame(since[0]?.entry, { kind: 'audit_event', ...second });
  t.strictSame((await log.listSince(0, { limit: 9, sessionId: 'sesn_2' })).length, 1);
  t.match((await log.list({ limit: 1, after: null })).items[0]?.entry, {
    kind: 'admin_event',
    createdAt: START_MS + 10_000,
  });
  t.equal(log.lastUsedAt('vcrd_a'), first.createdAt);
  t.equal(log.lastUsedAt('vcrd_b'), null, 'a miss is no use');
});

test('times are searched through in windows', async (t) => {
  const { log, path } = await openTestLog(t);
  t.teardown(() => log.close());
  t.strictSame((await log.list({ limit: 2, after: null, createdAtGte: 3 })).items, [], 'an empty log');
  const database = openConnection(path, { readonly: false });
  database.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
    INSERT INTO audit_entries (id, created_at, entry) SELECT 'x' || i, i, '{"kind":"admin_event","id":"x' || i || '"}' FROM n`);
  database.close();
  const page = await log.list({ limit: 2, after: null, createdAtGte: 3, createdAtLt: 6 });
  t.strictSame(
    page.items.map(({ sequence }) => sequence),
    [5, 4],
  );
  t.strictSame((await log.list({ limit: 2, after: page.next, createdAtGte: 3, createdAtLt: 6 })).items.length, 1);
  t.equal((await log.list({ limit: 100, after: null, createdAtLt: 9000 })).items[0]?.sequence, 8999);
});

test('batches leave by themselves in time, and at once when they are full', async (t) => {
  const { log, path } = await openTestLog(t);
  t.teardown(() => log.close());
  const started = performance.now();
  log.record(newEvent({ path: 'p'.repeat(10_000), host: 'h'.repeat(5000) }));
  const until = async (wanted: number) => {
    while ((await log.lastSequence()) < wanted) await new Promise((resolve) => setImmediate(resolve));
  };
  await until(1);
  t.ok(performance.now() - started >= 150, 'collected for a while');
  const [row] = (await log.list({ limit: 1, after: null })).items;
  t.match(row?.entry, { path: `${'p'.repeat(AUDIT_TEXT_CHARACTERS_MAX - 1)}…` }, 'texts are bounded');
  for (let n = 0; n < 2.5 * AUDIT_BATCH_EVENTS_MAX; n += 1) log.record(newEvent());
  await until(1 + AUDIT_BATCH_EVENTS_MAX);
  await log.flush();
  t.equal(await log.lastSequence(), 1 + 2.5 * AUDIT_BATCH_EVENTS_MAX);
  for (let n = 0; n < AUDIT_BATCH_EVENTS_MAX + 1; n += 1) log.record(newEvent());
  await until(2 + 3.5 * AUDIT_BATCH_EVENTS_MAX);
  t.equal(log.depth() <= 1, true, 'the rest follows without another event');
  const database = openConnection(path, { readonly: true });
  t.equal(database.prepare('SELECT count(*) FROM audit_entries').pluck().get(), 2 + 3.5 * AUDIT_BATCH_EVENTS_MAX);
  database.close();
});

test('a full queue makes callers wait, one session without the others', async (t) => {
  const queue = createAuditQueue({ eventsMax: 4, perSessionMax: 2 });
  const push = (sessionId: string | null) => {
    queue.push(toAuditRow(newEvent({ sessionId })));
  };
  t.equal(queue.ready('a'), undefined);
  push('a');
  push('a');
  const first = queue.ready('a');
  t.type(first, Promise);
  t.equal(queue.ready('b'), undefined);
  t.equal(queue.ready(null), undefined);
  push('b');
  push(null);
  const [other, none] = [queue.ready('b'), queue.ready(null)];
  t.equal(queue.peek(3).length, 3);
  t.equal(queue.size(), 4);
  let isFirstReady = false;
  void first?.then(() => (isFirstReady = true));
  queue.push(toAuditRow(newEvent({ sessionId: 'a' })));
  queue.settle(1);
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(isFirstReady, false, 'still two of its own');
  queue.settle(1);
  await Promise.all([first, other, none]);
  queue.push(toAuditRow(newEvent({ sessionId: 'a' })));
  const last = queue.ready('a');
  queue.release();
  await last;
  t.equal(createAuditQueue().ready('a'), undefined);
});

test('a log that takes nothing keeps its entries, tells once, and goes on', async (t) => {
  const { log, lines, path } = await openTestLog(t);
  t.teardown(() => log.close());
  const byHand = openConnection(path, { readonly: false });
  t.teardown(() => byHand.close());
  // The thread's inserts fail, as they do on a full disk.
  byHand.exec("CREATE TRIGGER full BEFORE INSERT ON audit_entries BEGIN SELECT raise(ABORT, 'full'); END");
  const events = [newEvent(), newEvent()];
  for (const event of events) log.record(event);
  let isFlushed = false;
  const flushed = log.flush().then(() => (isFlushed = true));
  while (lines.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  await new Promise((resolve) => setTimeout(resolve, 150));
  t.equal(isFlushed, false);
  t.equal(log.depth(), 2);
  byHand.exec('DROP TRIGGER full');
  await flushed;
  t.strictSame(
    lines.map(({ level, code, count: n }) => ({ level, code, count: n })),
    [
      { level: 'warn', code: 'SQLITE_CONSTRAINT_TRIGGER', count: 2 },
      { level: 'info', code: undefined, count: 2 },
    ],
  );
  t.equal(await log.lastSequence(), 2);
});

test('closing does not wait for ever, and says what is lost', async (t) => {
  const { log, lines, path } = await openTestLog(t, {
    closeTimeoutMs: 50,
    queueLimits: { eventsMax: 1, perSessionMax: 1 },
  });
  const byHand = openConnection(path, { readonly: false });
  byHand.exec("CREATE TRIGGER full BEFORE INSERT ON audit_entries BEGIN SELECT raise(ABORT, 'full'); END");
  byHand.close();
  log.record(newEvent());
  const room = log.ready('sesn_1');
  t.type(room, Promise);
  await log.close();
  await room;
  t.match(lines.at(-1), { level: 'error', count: 1, message: /lost/ });
});

test('old entries go first, by age and by size', async (t) => {
  const { log, lines, clock, path } = await openTestLog(t, { retention: { days: 1, bytesMax: 2 ** 31 } });
  t.teardown(() => log.close());
  for (let n = 0; n < 700; n += 1) log.record(newEvent({ createdAt: START_MS, swaps: [swap('vcrd_a')] }));
  log.record(newEvent({ createdAt: START_MS + 3_600_000 }));
  await log.flush();
  t.equal(await log.prune(), 0);
  clock.advance(24 * 3_600_000 + 1);
  t.equal(await log.prune(), 700);
  t.equal((await log.list({ limit: 9, after: null })).items.length, 1);
  t.equal((await log.list({ limit: 9, after: null, credentialId: 'vcrd_a' })).items.length, 0);
  t.equal(log.lastUsedAt('vcrd_a'), START_MS, 'the last use is kept');
  t.equal(await log.lastSequence(), 701, 'numbers are not used again');
  const byHand = openConnection(path, { readonly: false });
  byHand.exec("CREATE TRIGGER stuck BEFORE DELETE ON audit_entries BEGIN SELECT raise(ABORT, 'stuck'); END");
  clock.advance(24 * 3_600_000);
  t.equal(await log.prune(), 0);
  t.match(lines, [{ level: 'warn', code: 'SQLITE_CONSTRAINT_TRIGGER', message: /could not be removed/ }]);
  byHand.exec('DROP TRIGGER stuck');
  byHand.close();
  const small = await openTestLog(t, { retention: { days: 30, bytesMax: 300_000 } });
  for (let n = 0; n < 1200; n += 1) small.log.record(newEvent({ path: `/${'x'.repeat(500)}` }));
  await small.log.flush();
  t.equal(await small.log.prune(), 1000);
  t.equal((await small.log.list({ limit: 1, after: null })).items[0]?.sequence, 1200, 'the newest stay');
  await small.log.close();
  const none = await openTestLog(t, { retention: null });
  t.equal(await none.log.prune(), 0);
  await none.log.close();
});

test('a batch is stored whole or not at all, and once', async (t) => {
  const path = createLogFile(t);
  const database = openConnection(path, { readonly: false });
  t.teardown(() => database.close());
  const batches = createAuditBatches(database);
  const rows = [toAuditRow(newEvent({ swaps: [swap('vcrd_x')] })), toAuditRow(newEvent())];
  const total = () => database.prepare('SELECT count(*) FROM audit_entries').pluck().get();
  t.throws(() => {
    batches.store(toBatch([...rows, { ...toAuditRow(newEvent()), entry: null as unknown as string }]));
  });
  t.equal(total(), 0);
  batches.store(toBatch(rows));
  batches.store(toBatch(rows));
  t.equal(total(), 2);
  const earlier = toAuditRow(newEvent({ createdAt: 5, swaps: [swap('vcrd_x')] }));
  batches.store(toBatch([earlier]));
  const lastUse = database.prepare("SELECT last_used_at FROM credential_uses WHERE credential_id = 'vcrd_x'").pluck();
  t.equal(lastUse.get(), rows[0]?.createdAt, 'the later use counts');
});

test('an entry is kept as it was recorded, whatever its texts hold', async (t) => {
  const { log } = await openTestLog(t);
  t.teardown(() => log.close());
  const odd = '"\\\n\u0000\u2028\ud800 é 𝄞';
  const event = newEvent({
    method: odd,
    host: odd,
    path: odd,
    sessionId: odd,
    reason: 'client_aborted',
    status: null,
    swaps: [swap('vcrd_a'), { ...swap('vcrd_ab'), headerName: odd }],
    veils: [{ credentialId: 'vcrd_b', count: 2 }],
    repeated: { clientAddress: odd, count: 3 },
  });
  log.record(event);
  const plain = newEvent({ reason: null });
  log.record(plain);
  await log.flush();
  const { items } = await log.list({ limit: 9, after: null });
  t.strictSame(
    items.map(({ entry }) => entry),
    [
      { kind: 'audit_event', ...plain },
      { kind: 'audit_event', ...event },
    ],
  );
  for (const credentialId of ['vcrd_a', 'vcrd_ab', 'vcrd_b'])
    t.equal((await log.list({ limit: 9, after: null, credentialId })).items.length, 1, credentialId);
});

test('what points at a removed entry goes with it, also when the entry can not be read any more', async (t) => {
  const { log, clock, path } = await openTestLog(t, { retention: { days: 1, bytesMax: 2 ** 31 } });
  t.teardown(() => log.close());
  for (const id of ['vcrd_a', 'vcrd_b', 'vcrd_c']) log.record(newEvent({ createdAt: START_MS, swaps: [swap(id)] }));
  const write = { actor: 'admin_token', action: 'vault.create', objectId: 'vlt_a', requestId: 'req_a' };
  log.recordAdmin({ id: 'aud_admin', createdAt: START_MS, ...write });
  await log.flush();
  const byHand = openConnection(path, { readonly: false });
  t.teardown(() => byHand.close());
  const links = () => byHand.prepare('SELECT count(*) FROM audit_credentials').pluck().get();
  t.equal(links(), 3);
  clock.advance(24 * 3_600_000 + 1);
  t.equal(await log.prune(), 4);
  t.equal(links(), 0);
  for (const id of ['vcrd_a', 'vcrd_b', 'vcrd_c']) log.record(newEvent({ createdAt: START_MS, swaps: [swap(id)] }));
  await log.flush();
  byHand.exec("UPDATE audit_entries SET entry = '{' WHERE sequence = 6");
  t.equal(await log.prune(), 3);
  t.equal(links(), 0);
});

test('the writer serves its port, also in this thread', async (t) => {
  const path = createLogFile(t);
  const incoming = new EventEmitter();
  const outgoing = new EventEmitter();
  const said: FromWriter[] = [];
  const tell = (message: ToWriter) => incoming.emit('message', message);
  serveAuditWriter(
    {
      postMessage(message) {
        said.push(message);
        outgoing.emit(message.type, message);
      },
      on: (event, listener) => incoming.on(event, listener),
      close: () => outgoing.emit('closed'),
    },
    path,
  );
  t.strictSame(said, [{ type: 'ready' }]);
  const row = toAuditRow(newEvent({ createdAt: 1 }));
  const broken = { ...row, id: null as unknown as string };
  tell({ type: 'batch', rows: toBatch([row]) });
  const rows = [...toBatch([broken])];
  const troubled = once(outgoing, 'stored');
  tell({ type: 'batch', rows });
  rows.splice(0, rows.length, ...toBatch([toAuditRow(newEvent({ createdAt: 2 }))]));
  await troubled;
  const pruned = once(outgoing, 'pruned');
  tell({ type: 'prune', retention: { createdAtGte: 2, bytesMax: 2 ** 31 } });
  await pruned;
  const odd = { ...broken, createdAt: 1n as unknown as number, entry: {} as unknown as string };
  tell({ type: 'batch', rows: toBatch([odd]) });
  const byHand = openConnection(path, { readonly: false });
  byHand.exec('DROP TABLE audit_entries');
  byHand.close();
  tell({ type: 'prune', retention: { createdAtGte: 9, bytesMax: 2 ** 31 } });
  tell({ type: 'close' });
  t.strictSame(said.slice(1), [
    { type: 'stored' },
    { type: 'trouble', code: 'SQLITE_CONSTRAINT_NOTNULL' },
    { type: 'stored' },
    { type: 'pruned', removed: 1, code: null },
    { type: 'trouble', code: 'unknown' },
    { type: 'pruned', removed: 0, code: 'SQLITE_ERROR' },
  ]);
});

test('a writer that ends is started again and stores what was under way', async (t) => {
  const path = createLogFile(t);
  const { logger, lines } = createMemoryLogger();
  const queue = createAuditQueue();
  const thread = new AuditThread({ path, logger, queue });
  t.equal(await thread.prune({ createdAtGte: 0, bytesMax: 1 }), 0, 'not before it is ready');
  await thread.untilReady();
  const byHand = openConnection(path, { readonly: false });
  byHand.exec("CREATE TRIGGER full BEFORE INSERT ON audit_entries BEGIN SELECT raise(ABORT, 'full'); END");
  queue.push(toAuditRow(newEvent()));
  const flushed = thread.flush();
  queue.push(toAuditRow(newEvent()));
  while (lines.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  await thread.terminate();
  byHand.exec('DROP TRIGGER full');
  await flushed;
  await thread.flush();
  t.match(lines, [{ level: 'warn' }, { level: 'error', message: /ended/ }, { level: 'info' }]);
  t.equal(byHand.prepare('SELECT count(*) FROM audit_entries').pluck().get(), 2);
  byHand.close();
  await thread.close();
  await thread.close();
});

test('a writer that can not start says so', async (t) => {
  const { logger, lines } = createMemoryLogger();
  const path = join(createTemporaryDirectory(t), 'none.db');
  const clock = createManualClock(START_MS);
  await t.rejects(openAuditLog({ path, clock, logger, retention: null }), {
    name: 'StartError',
    message: /none\.db did not start/,
  });
  t.match(lines, [
    { level: 'error', message: /failed/ },
    { level: 'error', message: /ended/ },
  ]);
});

test('a query on a failing database is store_unavailable, and credentials show their last use', async (t) => {
  const { store, directory } = await openTestStore(t);
  const vault = await store.control.vaults.create({ displayName: 'v', metadata: {} });
  const credential = await store.control.credentials.create(newCredential(vault.id));
  const event = newEvent({ swaps: [swap(credential.id)] });
  store.audit.record(event);
  await store.audit.flush();
  t.equal((await store.control.credentials.get(vault.id, credential.id)).lastUsedAt, event.createdAt);
  const byHand = openConnection(join(directory, 'audit.db'), { readonly: false });
  byHand.exec('ALTER TABLE audit_entries RENAME TO gone');
  byHand.close();
  await t.rejects(store.audit.list({ limit: 1, after: null }), { code: 'store_unavailable' });
  await t.rejects(store.audit.list({ limit: 1, after: null, createdAtGte: 1 }), { code: 'store_unavailable' });
  await t.rejects(store.audit.listSince(0, { limit: 1 }), { code: 'store_unavailable' });
  await t.rejects(store.audit.lastSequence(), { code: 'store_unavailable' });
});
