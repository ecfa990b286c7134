// Runs the client matrix, prints it as a table, and writes it to docs/clients.md: `npm run test:clients [-- NAME…]`.
import { clients } from './clients.ts';
import { COLUMNS, type Client } from './client.ts';
import { formatTable, writeDocument, type Cell, type Row } from './report.ts';
import { openScene, type Scene } from './scene.ts';
import { route } from './routes.ts';

async function runClient(client: Client, scene: Scene): Promise<Row> {
  const probed = client.probe();
  if ('missing' in probed) {
    console.log(`skipped   ${client.name}: ${probed.missing}`);
    return { client, version: null, cells: COLUMNS.map(() => 'skipped') };
  }
  const cells: Cell[] = [];
  let complaint = await attempt(() => client.prepare?.(scene));
  for (const column of COLUMNS) {
    const check = client.checks[column];
    if (check === undefined) {
      cells.push('none');
      continue;
    }
    const startedAt = performance.now();
    const failure = complaint ?? (await attempt(() => check(scene)));
    cells.push(failure === null ? 'works' : 'fails');
    const took = `${Math.round(performance.now() - startedAt)} ms`;
    console.log(`${failure === null ? 'works  ' : 'FAILS  '}   ${client.name}: ${column} (${took})`);
    if (failure !== null) console.log(failure.replaceAll(/^/gm, '    '));
    complaint = null;
  }
  return { client, version: probed.version, cells };
}

async function attempt(work: () => Promise<void> | undefined): Promise<string | null> {
  try {
    await work();
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

const wanted = process.argv.slice(2);
const chosen = clients.filter(({ name }) => wanted.length === 0 || wanted.some((part) => name.includes(part)));
const scene = await openScene({ route });
const rows: Row[] = [];
try {
  for (const client of chosen) rows.push(await runClient(client, scene));
} finally {
  await scene.close();
}
console.log(`\n${formatTable(rows)}`);
if (wanted.length === 0) writeDocument(rows);
const count = (cell: Cell): number => rows.flatMap(({ cells }) => cells).filter((one) => one === cell).length;
console.log(
  `${count('works')} passed, ${count('fails')} failed, ${rows.filter((row) => row.version === null).length} skipped`,
);
if (count('fails') > 0) process.exitCode = 1;
