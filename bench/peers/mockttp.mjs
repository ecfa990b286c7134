// mockttp as a proxy that passes everything on, with a callback that replaces one header.
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { generateCACertificate, getLocal } from 'mockttp';

const { BENCH_CA, BENCH_PLACEHOLDER, BENCH_VALUE, BENCH_PORT } = process.env;
const server = getLocal({ https: await generateCACertificate(), recordTraffic: false });
await server.start(Number(BENCH_PORT));
await server.forUnmatchedRequest().thenPassThrough({
  trustAdditionalCAs: [{ cert: readFileSync(BENCH_CA, 'utf8') }],
  beforeRequest: ({ headers }) => {
    if (headers.authorization === undefined) return undefined;
    return { headers: { ...headers, authorization: headers.authorization.replace(BENCH_PLACEHOLDER, BENCH_VALUE) } };
  },
});
process.stdout.write(`READY ${server.port}\n`);
