// HTTP/2 from the client, 32 streams on one connection, against the same requests over HTTP/1.1.
import type { BenchCase, BenchContext } from '../support/case.ts';
import { roundsOf } from '../support/case.ts';
import { startKeyveil } from '../support/keyveil.ts';
import { generate, load, measureCost, targetOf, warmUp, type LoadResult } from '../support/load.ts';
import type { CaseResult } from '../support/report.ts';
import { ratios } from '../support/statistics.ts';

const STREAMS = 32;

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene, say, isQuick } = context;
  const seconds = isQuick ? 2 : 4;
  const rounds = roundsOf(context, 8);
  const keyveil = await startKeyveil(scene);
  const http2 = (port: number) => () =>
    generate<LoadResult>('http2', { ...targetOf(keyveil, port), connections: STREAMS, seconds });
  const works = [
    ['HTTP/1.1 to HTTP/1.1', () => load(scene, keyveil, { connections: 16, seconds })],
    ['HTTP/2 to HTTP/1.1', http2(scene.ports.canned)],
    ['HTTP/2 to HTTP/2', http2(scene.ports.http2)],
  ] as const;
  await warmUp(context, keyveil);
  for (let times = 0; times < (isQuick ? 1 : 4); times += 1) for (const [, work] of works.slice(1)) await work();
  const values: number[][] = works.map(() => []);
  for (let round = 0; round < rounds; round += 1) {
    say(`round ${round + 1} of ${rounds}`);
    for (const [index, [, work]] of works.entries()) {
      const cost = await measureCost(scene, { proxy: keyveil, seconds: seconds + (index === 0 ? 0 : 0.5), run: work });
      values[index]?.push(cost.cpuPerRequestUs);
    }
  }
  await keyveil.stop();
  const [base = [], toHttp1 = [], toHttp2 = []] = values;
  return {
    measurements: works.map(([subject], index) => ({
      subject,
      figure: 'CPU per request',
      unit: 'µs',
      values: values[index] ?? [],
    })),
    rows: [
      {
        work: 'HTTP/2 to an HTTP/1.1 upstream: CPU against HTTP/1.1',
        unit: '×',
        values: ratios(toHttp1, base),
        must: 1.2,
        aim: 1,
        better: 'lower',
      },
      {
        work: 'HTTP/2 to an HTTP/2 upstream: CPU against HTTP/1.1',
        unit: '×',
        values: ratios(toHttp2, base),
        must: 1.8,
        aim: 1.4,
        better: 'lower',
      },
    ],
    notes: [`${STREAMS} streams on one connection, by the Node.js generator; HTTP/1.1 over 16 connections.`],
  };
}

export const HTTP2: BenchCase = { name: 'http2', summary: 'HTTP/2, 32 streams on one connection', run };
