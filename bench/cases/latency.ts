// Latency that Keyveil adds at one connection, over a proxy that relays bytes unread.
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import { load, warmUp } from '../support/load.ts';
import { startPeer } from '../support/peers.ts';
import type { CaseResult, Row } from '../support/report.ts';

const ROUNDS = 9;
const FIGURES = [
  ['p50', 0.4, 0.25],
  ['p99', 5, 2],
] as const;

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene, say, isQuick } = context;
  const proxies = [await startPeer('plain-tunnel', scene), await startKeyveil(scene)] as const;
  for (const proxy of proxies) await warmUp(context, proxy);
  const values = { p50: [[], []] as [number[], number[]], p99: [[], []] as [number[], number[]] };
  const rounds = roundsOf(context, ROUNDS);
  for (let round = 0; round < rounds; round += 1) {
    say(`round ${round + 1} of ${rounds}`);
    for (const [index, proxy] of proxies.entries()) {
      const result = await load(scene, proxy, { connections: 1, seconds: isQuick ? 1 : 3 });
      values.p50[index]?.push(result.p50);
      values.p99[index]?.push(result.p99);
    }
  }
  for (const proxy of proxies) await proxy.stop();
  const measurements = FIGURES.flatMap(([figure]) =>
    proxies.map(({ name }, index) => ({ subject: name, figure, unit: 'ms', values: values[figure][index] ?? [] })),
  );
  const rows = FIGURES.map(([figure, must, aim]): Row => {
    const [tunnel, own] = values[figure];
    const added = own.map((value, index) => value - (tunnel[index] as number));
    return { work: `added latency, ${figure}`, unit: 'ms', values: added, must, aim, better: 'lower' };
  });
  return { measurements, rows, notes: [] };
}

export const LATENCY: BenchCase = { name: 'latency', summary: 'latency at one connection over a plain tunnel', run };
