// Thousands of open streams and idle tunnels, held for minutes with the daemon's memory watched: node --import ./scripts/ts-register.mjs bench/hold.ts [minutes]
import { once } from 'node:events';
import { startKeyveil } from './support/keyveil.ts';
import { pause, targetOf } from './support/load.ts';
import { startProgram, stopAll } from './support/processes.ts';
import { openScene, typescriptCommand } from './support/scene.ts';

const PER_SESSION = 500; // below the limit of tunnels per session
const COUNT = 2000;
const EVENTS_PER_SECOND = 200;
const IDLE_SECONDS = 150;
const SAMPLE_MS = 30_000;
const MINUTES_DEFAULT = 10;
const MIB = 1024 * 1024;
/** Of what is resident one minute after all are open. */
const GROWTH_BELOW = 1.05;

const minutes = Number(process.argv[2] ?? MINUTES_DEFAULT);
const scene = await openScene();
try {
  const keyveil = await startKeyveil(scene);
  const empty = keyveil.residentBytes();
  const open = async (work: string, options: object) => {
    const command = [...typescriptCommand('programs/generator.ts'), work, JSON.stringify(options)];
    return startProgram(command, { readyLine: /^OPEN$/, withChannel: true });
  };
  const streams = [];
  for (let opened = 0; opened < COUNT; opened += PER_SESSION) {
    const login = await keyveil.openSession();
    const target = { ...targetOf(keyveil, scene.ports.streams), login };
    streams.push(await open('event-streams', { ...target, streams: PER_SESSION }));
    const idle = { ...targetOf(keyveil, scene.ports.canned), login: await keyveil.openSession() };
    await open('idle-tunnels', { ...idle, tunnels: PER_SESSION, everySeconds: IDLE_SECONDS });
    console.log(`${opened + PER_SESSION} streams and as many idle tunnels are open`);
  }
  await scene.ask({ type: 'events', perSecond: EVENTS_PER_SECOND, seconds: minutes * 60 });
  const samples: number[] = [];
  for (let left = minutes * 60_000; left > 0; left -= SAMPLE_MS) {
    await pause(SAMPLE_MS);
    samples.push(keyveil.residentBytes());
    const { streamCount } = await scene.ask();
    console.log(`${(samples.at(-1) ?? 0) / MIB} MiB resident, ${streamCount} streams`);
    if (streamCount !== COUNT) throw new Error('A stream was closed.');
  }
  let events = 0;
  for (const { child } of streams) {
    const answer = once(child, 'message');
    child.send({ type: 'report' });
    events += ((await answer) as [{ events: number }])[0].events;
  }
  const [, first = 0] = samples;
  const last = Math.max(...samples.slice(-4));
  console.log(
    `${EVENTS_PER_SECOND * minutes * 60} events sent, ${events} received; ${((last - empty) / (2 * COUNT) / 1024).toFixed(0)} KiB each; ` +
      `${(last / first).toFixed(3)} × of what was resident after a minute`,
  );
  if (last / first > GROWTH_BELOW) process.exitCode = 1;
} finally {
  await stopAll();
  await scene.close();
}
