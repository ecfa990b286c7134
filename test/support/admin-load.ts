// Parallel writers and readers through the API, each checking that what it was told stays true.
import type { AdminApi, Answer } from './admin-api.ts';

export interface LoadOptions {
  /** Half write, half read. */
  readonly workers: number;
  readonly durationMs: number;
}

export interface LoadResult {
  readonly calls: number;
  /** What went wrong, in words. */
  readonly faults: readonly string[];
}

interface Load {
  readonly api: Pick<AdminApi, 'call'>;
  readonly until: number;
  readonly faults: string[];
  readonly shared: { vaultId: string; calls: number };
}

async function checkedCall(load: Load, line: string, body?: unknown): Promise<Answer> {
  const [method = '', path = ''] = line.split(' ');
  load.shared.calls += 1;
  const answer = await load.api.call(method, path, { body });
  if (answer.status !== 200) load.faults.push(`${line}: ${answer.status} ${answer.text}`);
  return answer;
}

/** Makes, changes and removes credentials of its own vault, and keeps count on a vault that all share. */
async function runWriter(load: Load, index: number): Promise<void> {
  const { id } = (await checkedCall(load, 'POST /v1/vaults', { display_name: `writer ${index}` })).body;
  const path = `/v1/vaults/${id}/credentials`;
  for (let round = 1; Date.now() < load.until; round += 1) {
    const auth = {
      type: 'environment_variable',
      secret_name: `N${round}`,
      secret_value: `value of round ${round}`,
      networking: { type: 'unrestricted' },
    };
    const { body } = await checkedCall(load, `POST ${path}`, { auth });
    const rotated = await checkedCall(load, `POST ${path}/${body.id}`, {
      auth: { secret_value: `rotated ${round} times` },
    });
    if (rotated.body.auth?.secret_version !== 2) load.faults.push(`writer ${index}: a rotation was lost`);
    // Every writer sets a key of its own on one vault: a lost update would drop another's.
    await checkedCall(load, `POST /v1/vaults/${load.shared.vaultId}`, {
      metadata: { [`w${index}`]: String(round) },
    });
    const { body: shared } = await checkedCall(load, `GET /v1/vaults/${load.shared.vaultId}`);
    if (shared.metadata?.[`w${index}`] !== String(round)) load.faults.push(`writer ${index}: an update was lost`);
    await checkedCall(load, `POST ${path}/${body.id}/archive`);
  }
}

/** Walks all vaults page by page: those that were there before the walk must come once each, newest first. */
async function runReader(load: Load, index: number): Promise<void> {
  while (Date.now() < load.until) {
    const { body: made } = await checkedCall(load, 'POST /v1/vaults', { display_name: `reader ${index}` });
    const seen: string[] = [];
    let page: string | null = '';
    while (page !== null) {
      const { body }: Answer = await checkedCall(load, `GET /v1/vaults?limit=7${page}`);
      seen.push(...(body.data as { id: string }[]).map((vault) => vault.id));
      page = body.next_page === null || body.next_page === undefined ? null : `&page=${body.next_page}`;
      if (seen.length > 400) break;
    }
    if (new Set(seen).size !== seen.length) load.faults.push(`reader ${index}: a list repeats a row`);
    if (!seen.includes(made.id)) load.faults.push(`reader ${index}: a list has a gap`);
    // The vaults of readers go away again, so that lists stay short.
    await checkedCall(load, `DELETE /v1/vaults/${made.id}`);
  }
}

/** Runs for the given time; at most 16 writers, since each has a metadata key of its own. */
export async function runAdminLoad(api: Pick<AdminApi, 'call'>, options: LoadOptions): Promise<LoadResult> {
  const faults: string[] = [];
  const vault = await api.call('POST', '/v1/vaults', { body: { display_name: 'shared' } });
  const shared = { vaultId: vault.body.id as string, calls: 0 };
  const load: Load = { api, until: Date.now() + options.durationMs, faults, shared };
  const writers = Math.min(16, Math.floor(options.workers / 2));
  await Promise.all(
    Array.from({ length: options.workers }, (_, index) =>
      index < writers ? runWriter(load, index) : runReader(load, index),
    ),
  );
  return { calls: shared.calls, faults: faults.slice(0, 20) };
}
