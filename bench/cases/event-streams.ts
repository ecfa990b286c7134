// Two thousand open event streams: memory of each, and how late an event is.
import { once } from 'node:events';
import process from 'node:process';
import type { BenchCase, BenchContext } from '../support/case.ts';
import { startKeyveil, type Keyveil } from '../support/keyveil.ts';
import type { Target } from '../support/client.ts';
import { pause, targetOf } from '../support/load.ts';
import { startPeer } from '../support/peers.ts';
import { startProgram } from '../support/processes.ts';
import type { CaseResult } from '../support/report.ts';
import { typescriptCommand } from '../support/scene.ts';

const PER_SESSION = 500; // below the limit of tunnels per session
const CONTROL_STREAMS = 50;
const KIB = 1024;

interface EventLatency {
  readonly events: number;
  readonly p50: number;
  readonly p99: number;
}

type Client = Awaited<ReturnType<typeof startProgram>>;

function startClient(target: Target & { streams: number }): Promise<Client> {
  const command = [...typescriptCommand('programs/generator.ts'), 'event-streams', JSON.stringify(target)];
  return startProgram(command, { readyLine: /^OPEN$/, withChannel: true });
}

async function latencyOf({ child }: Client): Promise<EventLatency> {
  const answer = once(child, 'message');
  child.send({ type: 'report' });
  return ((await answer) as [EventLatency])[0];
}

/** Opens streams, in as many sessions as it takes. */
async function openStreams(context: BenchContext, keyveil: Keyveil, count: number) {
  const clients = [];
  for (let opened = 0; opened < count; opened += PER_SESSION) {
    const login = await keyveil.openSession();
    const streams = Math.min(PER_SESSION, count - opened);
    const target = { ...targetOf(keyveil, context.scene.ports.streams), login, streams };
    clients.push(await startClient(target));
    context.say(`${opened + streams} streams are open`);
  }
  while ((await context.scene.ask()).streamCount < count) await pause(100);
  return clients;
}

async function run(context: BenchContext): Promise<CaseResult> {
  const { scene, say, isQuick } = context;
  const [count, perSecond, seconds] = isQuick ? [500, 250, 4] : [2000, 1000, 20];
  const keyveil = await startKeyveil(scene);
  const warm = await openStreams(context, keyveil, 50);
  for (const client of warm) await client.stop();
  await pause(1000);
  const before = keyveil.residentBytes();
  const clients = await openStreams(context, keyveil, count);
  await pause(2000);
  const eachKib = (keyveil.residentBytes() - before) / count / KIB;
  // What the machine, the upstream and a client add by themselves, in the same moments.
  const tunnel = await startPeer('plain-tunnel', scene);
  const control = await startClient({ ...targetOf(tunnel, scene.ports.streams), streams: CONTROL_STREAMS });
  while ((await scene.ask()).streamCount < count + CONTROL_STREAMS) await pause(100);
  say(`sending ${perSecond} events/s for ${seconds} s`);
  await scene.ask({ type: 'events', perSecond, seconds });
  await pause((seconds + 2) * 1000);
  const latencies: EventLatency[] = [];
  for (const client of clients) latencies.push(await latencyOf(client));
  const floor = await latencyOf(control);
  const afterEventsKib = (keyveil.residentBytes() - before) / count / KIB;
  for (const client of [...clients, control]) await client.stop();
  await tunnel.stop();
  await keyveil.stop();
  const events = latencies.reduce((sum, latency) => sum + latency.events, floor.events);
  const isNode20 = process.versions.node.startsWith('20.');
  const [must, aim] = isNode20 ? [160, 110] : [240, 170];
  return {
    measurements: [
      {
        subject: 'keyveil',
        figure: 'resident memory per stream, after the events',
        unit: 'KiB',
        values: [afterEventsKib],
      },
      {
        subject: 'keyveil',
        figure: 'event latency p50, by client',
        unit: 'ms',
        values: latencies.map(({ p50 }) => p50),
      },
      { subject: 'plain-tunnel', figure: 'event latency p50, in the same moments', unit: 'ms', values: [floor.p50] },
      { subject: 'plain-tunnel', figure: 'event latency p99, in the same moments', unit: 'ms', values: [floor.p99] },
    ],
    rows: [
      {
        work: `${count} open event streams: resident memory of each`,
        unit: 'KiB',
        values: [eachKib],
        must,
        aim,
        better: 'lower',
      },
      {
        work: `event latency p99 at ${perSecond} events/s`,
        unit: 'ms',
        values: latencies.map(({ p99 }) => p99),
        must: 50,
        aim: 15,
        better: 'lower',
      },
    ],
    notes: [
      `${events} of ${perSecond * seconds} events arrived; ${clients.length} client processes, whose own delays are in the latency.`,
    ],
  };
}

export const EVENT_STREAMS: BenchCase = { name: 'event-streams', summary: '2,000 open event streams', run };
