// The soak: `npm run soak -- MINUTES` (default 30). Mixed traffic through the built daemon; says each minute what it holds,
// and fails when an answer was wrong, or when memory or handles have grown from minute 5 on.
import { readdirSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { startDaemonProcess, type DaemonProcess } from '../test/support/daemon-process.ts';
import { startFullUpstream } from '../test/support/full-upstream.ts';
import { createTestAuthority } from '../test/support/test-authority.ts';
import { HOST, LOADS, soakRoute, valueOf, type SoakScene } from './support/soak-load.ts';
import { spreadOf } from './support/statistics.ts';

const MINUTES_DEFAULT = 30;
const MINUTE_MS = 60_000;
const MIB = 1024 * 1024;
/** Before it caches fill and the heap finds its size. */
const FLAT_FROM_MINUTE = 5;
const JUDGED_FROM_MINUTES = 10;
const RSS_GROWTH_MAX = 0.1;
const HANDLE_GROWTH_MAX = 8;
const ERRORS_SHOWN_MAX = 20;

interface Sample {
  readonly minute: number;
  readonly rssMib: number;
  readonly handles: number;
  readonly line: string;
}

class Tally {
  readonly counts = new Map<string, number>();
  readonly errors: string[] = [];

  async repeat(name: string, scene: SoakScene, run: (scene: SoakScene) => Promise<void>): Promise<void> {
    while (scene.isRunning()) {
      try {
        await run(scene);
        this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
      } catch (error) {
        this.errors.push(`${name}: ${(error as Error).message}`);
        await delay(1000);
      }
    }
  }
}

async function gauge(keyveil: DaemonProcess, name: string): Promise<string> {
  const { body } = await keyveil.admin('GET', '/metrics');
  return new RegExp(`^${name} (\\S+)$`, 'm').exec(String(body['text']))?.[1] ?? '?';
}

async function takeSample(keyveil: DaemonProcess, minute: number): Promise<Sample> {
  const rssMib = keyveil.residentBytes() / MIB;
  const handles = readdirSync(`/proc/${keyveil.pid}/fd`).length;
  const [tunnels, heap] = await Promise.all([
    gauge(keyveil, 'keyveil_tunnels'),
    gauge(keyveil, 'nodejs_heap_size_used_bytes'),
  ]);
  const used = Number.isFinite(Number(heap)) ? `, ${Math.round(Number(heap) / MIB)} MiB of heap in use` : '';
  const line = `minute ${minute.toFixed(1)}: ${rssMib.toFixed(0)} MiB${used}, ${handles} handles, ${tunnels} tunnels`;
  return { minute, rssMib, handles, line };
}

/** What has grown from minute 5 on: the last third of the samples against the first. */
function findGrowth(samples: readonly Sample[]): string[] {
  const late = samples.filter(({ minute }) => minute >= FLAT_FROM_MINUTE);
  const third = Math.max(1, Math.floor(late.length / 3));
  const medians = (pick: (sample: Sample) => number): readonly [number, number] => [
    spreadOf(late.slice(0, third).map(pick)).median,
    spreadOf(late.slice(-third).map(pick)).median,
  ];
  const [rssBefore, rssAfter] = medians(({ rssMib }) => rssMib);
  const [handlesBefore, handlesAfter] = medians(({ handles }) => handles);
  console.log(
    `from minute ${FLAT_FROM_MINUTE} on: ${rssBefore.toFixed(0)} to ${rssAfter.toFixed(0)} MiB, ${handlesBefore} to ${handlesAfter} handles`,
  );
  return [
    ...(rssAfter > rssBefore * (1 + RSS_GROWTH_MAX) ? ['the memory has grown'] : []),
    ...(handlesAfter > handlesBefore + HANDLE_GROWTH_MAX ? ['the handles have grown'] : []),
  ];
}

async function openScene(keyveil: DaemonProcess, isRunning: () => boolean): Promise<SoakScene> {
  const vaultId = await keyveil.createVault('soak');
  const credential = await keyveil.createCredential(vaultId, {
    secret_name: 'SOAK_KEY',
    secret_value: valueOf(1),
    networking: { type: 'limited', allowed_hosts: [HOST] },
    injection_location: { header: true, body: true },
  });
  const session = await keyveil.createSession({ vault_ids: [vaultId] });
  return { keyveil, vaultId, credential, session, values: [valueOf(1)], isRunning };
}

async function soak(minutes: number): Promise<boolean> {
  const authority = createTestAuthority();
  const upstream = await startFullUpstream({ leaf: authority.leafFor([HOST]), route: soakRoute });
  const environment = { KEYVEIL_LOG_LEVEL: 'info' };
  const keyveil = await startDaemonProcess({ authority, overrides: { [HOST]: upstream.port }, environment });
  const startedAt = performance.now();
  const endsAt = startedAt + minutes * MINUTE_MS;
  const tally = new Tally();
  const samples: Sample[] = [];
  try {
    const scene = await openScene(keyveil, () => performance.now() < endsAt);
    const loops = LOADS.flatMap(([name, clients, run]) =>
      Array.from({ length: clients }, () => tally.repeat(name, scene, run)),
    );
    while (scene.isRunning()) {
      await delay(Math.min(MINUTE_MS, endsAt - performance.now()));
      // What the upstream keeps for tests would be this program's own leak.
      upstream.received.length = 0;
      upstream.messages.length = 0;
      const sample = await takeSample(keyveil, (performance.now() - startedAt) / MINUTE_MS);
      samples.push(sample);
      console.log(`${sample.line}, ${tally.errors.length} errors`);
    }
    await Promise.all(loops);
  } finally {
    const failures = keyveil.log.filter((line) => /"level":"(error|fatal)"/.test(line));
    tally.errors.push(...failures.map((line) => `logged: ${line}`));
    await keyveil.close();
    await upstream.close();
  }
  console.log([...tally.counts].map(([name, count]) => `${name} ${count}`).join(', '));
  for (const error of tally.errors.slice(0, ERRORS_SHOWN_MAX)) console.log(error);
  const isJudged = minutes >= JUDGED_FROM_MINUTES;
  const growth = isJudged ? findGrowth(samples) : [];
  const verdict = isJudged ? (growth.length === 0 ? 'flat' : growth.join(', ')) : 'too short to judge growth';
  console.log(`${minutes} minutes, ${tally.errors.length} errors that no client caused, ${verdict}`);
  return tally.errors.length === 0 && growth.length === 0;
}

process.exitCode = (await soak(Number(process.argv[2] ?? MINUTES_DEFAULT))) ? 0 : 1;
